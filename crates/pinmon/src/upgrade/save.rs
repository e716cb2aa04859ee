//! Saving of the monitor's state.

use std::rc::Rc;

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use super::state::{self, FORMAT, FdNumber, Head, State};
use crate::{
    child::{Child, Stage},
    connection::RequestId,
    exec::{ExecSession, ExecStage},
    log::sink::Loss,
    monitor::Monitor,
    output::Output,
    programs::Filter,
    removal::RemovalJob,
    timer::Timer,
};

/// The state, and every descriptor that it names.
pub(super) struct Saved<'a> {
    pub(super) state: State,
    pub(super) files: Vec<BorrowedFd<'a>>,
}

impl Monitor {
    /// Returns why an upgrade is not possible now; `None` if no operation is pending.
    pub(super) fn pending_work(&self) -> Option<String> {
        let child = self.containers.values().find(|child| stage(child).is_none());
        let exec = self.execs.values().find(|c| !matches!(c.stage, ExecStage::Running | ExecStage::Leftover));
        match (child, exec) {
            (Some(child), _) => Some(format!("container {} has not reached execve", child.id)),
            (_, Some(exec)) => Some(format!("exec {} has not reached execve", exec.id)),
            _ if self.removals.values().any(RemovalJob::is_awaited) => Some("cgroups are being removed".to_owned()),
            _ if !self.runners.is_empty() => Some("hooks of a container are running".to_owned()),
            _ if !self.makers.is_empty() => Some("the namespaces of a pod are being created".to_owned()),
            _ if self.link.as_ref().is_some_and(|link| !link.mounts.is_empty()) => {
                Some("mounts of a container wait for its creation".to_owned())
            }
            _ if !self.unused_mounts.is_empty() => Some("mounts are being closed".to_owned()),
            _ if self.link.as_ref().is_some_and(|link| !link.is_flushed()) => {
                Some("the daemon does not read its answers".to_owned())
            }
            _ => None,
        }
    }

    /// Saves the state. Only if there is no [`Monitor::pending_work`].
    pub(super) fn save<'a>(
        &'a self,
        request_id: RequestId,
        journal: String,
        close_queue: &'a [Rc<OwnedFd>],
    ) -> Saved<'a> {
        let mut files = Files::default();
        let mut programs = Vec::new();
        let containers =
            self.containers.iter().filter_map(|(serial, child)| container(*serial, child, &mut files, &mut programs));
        let containers = containers.collect();
        let orphans = self.writers.orphans.iter().map(|(serial, (id, orphan))| state::Orphan {
            serial: *serial,
            id: id.clone(),
            output: output(orphan, &mut files),
        });
        let orphans = orphans.collect();
        let execs = self.execs.iter().map(|(serial, c)| exec(*serial, c, &self.listener, &mut files)).collect();
        let keyed = self
            .keyed_descriptors
            .iter()
            .map(|(key, list)| (key.clone(), list.iter().map(|fd| files.add(fd)).collect()));
        let keyed = keyed.collect();
        let link = self.link.as_ref().map(|link| state::Link {
            fd: files.add(&link.connection),
            number: link.number,
            greeted: link.greeted,
        });
        let mut state = State {
            all: Vec::new(),
            head: Head { format: FORMAT, contract: monitor_api::MAJOR, version: env!("CARGO_PKG_VERSION").to_owned() },
            request_id,
            listener: files.add(&self.listener),
            directory: files.add(self.journals.state()),
            journal,
            trees: self.trees.descriptors().map(|(name, fd)| (name.to_owned(), files.add_borrowed(fd))).collect(),
            node_mounts: self.node_mounts.as_ref().map(|fd| files.add(fd)),
            files: self.inherited_limits.open_files.map(|limit| (limit.current, limit.maximum)),
            oom_score_adj: self.inherited_limits.oom_score_adj,
            link,
            links: self.links,
            serials: self.serials,
            programs: programs.iter().map(|program| program.to_bytes()).collect(),
            containers,
            orphans,
            commands: execs,
            kept: keyed,
            closing: close_queue.iter().map(|master| files.add(&**master)).collect(),
            timers: self.timers.all().filter(|(_, timer)| *timer != Timer::Signals).collect(),
        };
        state.all = files.0.iter().map(AsRawFd::as_raw_fd).collect();
        Saved { state, files: files.0 }
    }
}

/// Descriptors that the state names.
#[derive(Default)]
struct Files<'a>(Vec<BorrowedFd<'a>>);

impl<'a> Files<'a> {
    fn add(&mut self, file: &'a impl AsFd) -> FdNumber {
        self.add_borrowed(file.as_fd())
    }

    fn add_borrowed(&mut self, file: BorrowedFd<'a>) -> FdNumber {
        self.0.push(file);
        file.as_raw_fd()
    }
}

/// Saves the stage. `None`: an operation is pending.
fn stage(child: &Child) -> Option<state::Stage> {
    Some(match &child.stage {
        Stage::Created(setup) => state::Stage::Created(setup.sync().as_raw_fd()),
        Stage::Running => state::Stage::Running,
        Stage::Draining(status) => state::Stage::Draining(status.clone()),
        Stage::Exited(status) => state::Stage::Exited(status.clone()),
        Stage::SettingUp(..) | Stage::Failing(..) | Stage::Starting(..) | Stage::Changing => return None,
    })
}

fn container<'a>(
    serial: u64,
    child: &'a Child,
    files: &mut Files<'a>,
    programs: &mut Vec<Rc<seccomp::Program>>,
) -> Option<state::Container> {
    let stage = stage(child)?;
    if let Some(setup) = child.setup() {
        files.add_borrowed(setup.sync());
    }
    Some(state::Container {
        serial,
        id: child.id.clone(),
        sandbox: child.sandbox.clone(),
        cgroup: child.cgroup.clone(),
        grouped: child.group().is_some(),
        pid: child.pid,
        start_time: child.start_time,
        pidfd: child.pidfd().map(|pidfd| files.add_borrowed(pidfd)),
        log: child.log,
        output: output(&child.output, files),
        stdin: child.stdin.as_ref().map(|fd| files.add(fd)),
        filter: filter(&child.filter, programs),
        hooks: child.hooks.clone(),
        pod_init: child.pod_init,
        stage,
        warnings: child.warnings.clone(),
        deletes: child.deletes.clone(),
        user_namespace: Some(child.user_namespace),
        removals: 0,
    })
}

fn filter(filter: &Filter, programs: &mut Vec<Rc<seccomp::Program>>) -> state::Filter {
    match filter {
        Filter::Unknown => state::Filter::Unknown,
        Filter::Known(None) => state::Filter::None,
        Filter::Known(Some(program)) => {
            let known = programs.iter().position(|known| Rc::ptr_eq(known, program));
            state::Filter::Program(known.unwrap_or_else(|| {
                programs.push(Rc::clone(program));
                programs.len() - 1
            }))
        }
    }
}

fn output<'a>(output: &'a Output, files: &mut Files<'a>) -> state::Output {
    let streams = output.streams.iter().map(|stream| state::Stream {
        kind: stream.kind,
        fd: files.add(&stream.file),
        terminal: stream.file.terminal().is_some(),
        ended: false,
        looks: 0,
        resting: false,
    });
    let streams = streams.collect();
    let taps =
        output.taps.iter().map(|tap| state::Tap { number: tap.number, kind: tap.kind, pipe: files.add(&tap.pipe) });
    let taps = taps.collect();
    let Loss { total, unwritten, report_at } = output.loss.clone();
    let sink = state::Sink { file: output.log.as_ref().map(|fd| files.add(fd)), total, unwritten, report_at };
    state::Output { line_max: output.line_max, streams, sink, taps, apart: output.place.dedicated.is_some() }
}

/// Saves an exec. A leftover has no process; programs that expect one get any descriptor and do not use it.
fn exec<'a>(serial: u64, exec: &'a ExecSession, listener: &'a impl AsFd, files: &mut Files<'a>) -> state::Exec {
    let (pid, pidfd, sync) = match exec.setup() {
        Some(setup) => (setup.pid.as_raw_pid(), files.add(&setup.pidfd), files.add_borrowed(setup.sync())),
        None => (0, listener.as_fd().as_raw_fd(), listener.as_fd().as_raw_fd()),
    };
    state::Exec {
        serial,
        id: exec.id.clone(),
        container: exec.container.clone(),
        pid,
        pidfd,
        sync,
        terminal: exec.terminal.as_ref().map(|fd| files.add(fd)),
        warnings: exec.warnings.clone(),
        left: exec.stage == ExecStage::Leftover,
    }
}
