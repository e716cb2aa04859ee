//! Saving of the monitor's state.

use std::rc::Rc;

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use super::state::{self, FdNumber, Head, State};
use crate::{
    containers::{Container, Stage},
    exec::{ExecSession, ExecStage},
    link::RequestId,
    log::sink::Loss,
    monitor::Monitor,
    output::Output,
    programs::Filter,
};

/// The state, and every descriptor that it names.
pub(super) struct Saved<'a> {
    pub(super) state: State,
    pub(super) files: Vec<BorrowedFd<'a>>,
}

/// Returns why an upgrade is not possible now; `None` if no operation is pending.
pub(super) fn pending_work(monitor: &Monitor) -> Option<String> {
    let container = monitor.containers.iter().find(|(_, container)| stage(container).is_none());
    let has_not_executed = |exec: &ExecSession| !matches!(exec.stage, ExecStage::Running | ExecStage::Leftover);
    let exec = monitor.execs.iter().find(|(_, exec)| has_not_executed(exec));
    match (container, exec) {
        (Some((_, container)), _) => Some(format!("container {} has not reached execve", container.description.id)),
        (_, Some((_, exec))) => Some(format!("exec {} has not reached execve", exec.id)),
        _ if monitor.removals.are_awaited() => Some("cgroups are being removed".to_owned()),
        _ if !monitor.runtime_commands.is_empty() => Some("an OCI runtime is running".to_owned()),
        _ if !monitor.hooks.is_empty() => Some("hooks of a container are running".to_owned()),
        _ if !monitor.namespace_makers.is_empty() => Some("the namespaces of a pod are being created".to_owned()),
        _ if monitor.mounts.has_pending() => Some("mounts of a container wait for its creation".to_owned()),
        _ if monitor.mounts.has_unused() => Some("mounts are being closed".to_owned()),
        _ if !monitor.services.link.is_flushed() => Some("the daemon does not read its answers".to_owned()),
        _ => None,
    }
}

/// Saves the state. Only if there is no [`pending_work`].
pub(super) fn save<'a>(
    monitor: &'a Monitor,
    request_id: RequestId,
    journal: String,
    closing: &'a [Rc<OwnedFd>],
) -> Saved<'a> {
    let Monitor { services, sources, node, outputs, .. } = monitor;
    let mut files = Files::default();
    let mut programs = Vec::new();
    let containers = containers(monitor, &mut files, &mut programs);
    let orphans = outputs.map.orphans().map(|(serial, orphan)| state::Orphan {
        serial,
        id: orphan.container.clone(),
        output: output(orphan, &mut files),
    });
    let orphans = orphans.collect();
    let commands =
        monitor.execs.iter().map(|(serial, saved)| exec(serial, saved, &sources.listener, &mut files)).collect();
    let kept = monitor.keyed_descriptors.iter();
    let kept = kept.map(|(key, list)| (key.clone(), list.iter().map(|fd| files.add(fd)).collect())).collect();
    let link = services.link.peer.as_ref().map(|peer| state::Link {
        fd: files.add(&peer.connection),
        number: peer.number,
        greeted: peer.greeted,
    });
    let mut state = State {
        all: Vec::new(),
        head: Head {
            format: state::format_with(&containers),
            contract: monitor_api::MAJOR,
            version: env!("CARGO_PKG_VERSION").to_owned(),
        },
        request_id,
        listener: files.add(&sources.listener),
        directory: files.add(outputs.journals.state()),
        journal,
        trees: node.trees.descriptors().map(|(name, fd)| (name.to_owned(), files.add_borrowed(fd))).collect(),
        node_mounts: monitor.hooks.node_mounts.as_ref().map(|fd| files.add(fd)),
        files: node.inherited_limits.open_files.map(|limit| (limit.current, limit.maximum)),
        oom_score_adj: node.inherited_limits.oom_score_adj,
        link,
        links: services.link.accepted,
        serials: services.serials,
        programs: programs.iter().map(|program| program.to_bytes()).collect(),
        containers,
        explained_oom_kills: monitor.oom_kills.explained().collect(),
        orphans,
        commands,
        kept,
        closing: closing.iter().map(|file| files.add(&**file)).collect(),
        timers: services.timers.all().collect(),
    };
    state.all = files.0.iter().map(AsRawFd::as_raw_fd).collect();
    Saved { state, files: files.0 }
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
fn stage(container: &Container) -> Option<state::Stage> {
    Some(match &container.stage {
        Stage::Created(setup) => state::Stage::Created(setup.sync().as_raw_fd()),
        Stage::Waiting => state::Stage::Waiting,
        Stage::Running => state::Stage::Running,
        Stage::Draining(status) => state::Stage::Draining(status.clone()),
        Stage::Exited(status) => state::Stage::Exited(status.clone()),
        Stage::SettingUp(..) | Stage::Failing(..) | Stage::Starting(..) | Stage::Changing => return None,
        Stage::Creating | Stage::Undoing(..) => return None,
    })
}

fn containers<'a>(
    monitor: &'a Monitor,
    files: &mut Files<'a>,
    programs: &mut Vec<Rc<seccomp::Program>>,
) -> Vec<state::Container> {
    let container = |(serial, container): (u64, &'a Container)| {
        let stage = stage(container)?;
        if let Some(setup) = container.setup() {
            files.add_borrowed(setup.sync());
        }
        Some(state::Container {
            serial,
            description: container.description.clone(),
            grouped: container.group().is_some(),
            oom_kills: monitor.oom_kills.counted(serial, &container.description.cgroup),
            pidfd: container.pidfd().map(|pidfd| files.add_borrowed(pidfd)),
            output: output(monitor.outputs.map.get(serial)?, files),
            stdin: container.stdin.as_ref().map(|fd| files.add(fd)),
            filter: filter(&container.filter, programs),
            pod_init: container.pod_init,
            stage,
            warnings: container.warnings.clone(),
            deletes: container.deletes.clone(),
            removals: 0,
        })
    };
    monitor.containers.iter().filter_map(container).collect()
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
    let limit = output.limit.as_ref().map(|limit| (limit.limit.clone(), files.add(&limit.directory)));
    state::Output { line_max: output.line_max, limit, streams, sink, taps, apart: output.place.dedicated.is_some() }
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
