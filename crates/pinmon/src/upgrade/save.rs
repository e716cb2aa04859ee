//! From the monitor to its state.

use std::rc::Rc;

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use super::state::{self, FORMAT, Head, Number, State};
use crate::{
    child::{Child, Stage},
    command::{Command, CommandStage},
    connection::Asked,
    log::sink::Loss,
    monitor::Monitor,
    output::Output,
    programs::Filter,
    removal::Job,
    timer::Timer,
};

/// The state, and every descriptor it names.
pub(super) struct Saved<'a> {
    pub(super) state: State,
    pub(super) files: Vec<BorrowedFd<'a>>,
}

impl Monitor {
    /// What hinders an upgrade now; `None`: nothing is on its way.
    pub(super) fn unsettled(&self) -> Option<String> {
        let child = self.containers.values().find(|child| stage(child).is_none());
        let command = self.commands.values().find(|c| !matches!(c.stage, CommandStage::Running | CommandStage::Left));
        match (child, command) {
            (Some(child), _) => Some(format!("container {} is on its way to execve", child.id)),
            (_, Some(command)) => Some(format!("command {} is on its way to execve", command.id)),
            _ if self.removals.values().any(Job::is_awaited) => Some("cgroups are being removed".to_owned()),
            _ if !self.runners.is_empty() => Some("hooks of a container run".to_owned()),
            _ if !self.makers.is_empty() => Some("the namespaces of a pod are being made".to_owned()),
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

    /// All that is held. Only while nothing is [`Monitor::unsettled`].
    pub(super) fn save<'a>(&'a self, asked: Asked, journal: String, closing: &'a [Rc<OwnedFd>]) -> Saved<'a> {
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
        let commands =
            self.commands.iter().map(|(serial, c)| command(*serial, c, &self.listener, &mut files)).collect();
        let kept = self.kept.iter().map(|(key, list)| (key.clone(), list.iter().map(|fd| files.add(fd)).collect()));
        let kept = kept.collect();
        let link = self.link.as_ref().map(|link| state::Link {
            fd: files.add(&link.connection),
            number: link.number,
            greeted: link.greeted,
        });
        let mut state = State {
            all: Vec::new(),
            head: Head { format: FORMAT, contract: monitor_api::MAJOR, version: env!("CARGO_PKG_VERSION").to_owned() },
            asked,
            listener: files.add(&self.listener),
            directory: files.add(self.journals.state()),
            journal,
            trees: self.trees.descriptors().map(|(name, fd)| (name.to_owned(), files.add_borrowed(fd))).collect(),
            node_mounts: self.node_mounts.as_ref().map(|fd| files.add(fd)),
            files: self.inherit.files.map(|limit| (limit.current, limit.maximum)),
            oom_score_adj: self.inherit.oom_score_adj,
            link,
            links: self.links,
            serials: self.serials,
            programs: programs.iter().map(|program| program.to_bytes()).collect(),
            containers,
            orphans,
            commands,
            kept,
            closing: closing.iter().map(|master| files.add(&**master)).collect(),
            timers: self.timers.all().filter(|(_, timer)| *timer != Timer::Signals).collect(),
        };
        state.all = files.0.iter().map(AsRawFd::as_raw_fd).collect();
        Saved { state, files: files.0 }
    }
}

/// What the state names.
#[derive(Default)]
struct Files<'a>(Vec<BorrowedFd<'a>>);

impl<'a> Files<'a> {
    fn add(&mut self, file: &'a impl AsFd) -> Number {
        self.add_borrowed(file.as_fd())
    }

    fn add_borrowed(&mut self, file: BorrowedFd<'a>) -> Number {
        self.0.push(file);
        file.as_raw_fd()
    }
}

/// `None`: somebody waits for what becomes of it.
fn stage(child: &Child) -> Option<state::Stage> {
    Some(match &child.stage {
        Stage::Created(nascent) => state::Stage::Created(nascent.sync().as_raw_fd()),
        Stage::Running => state::Stage::Running,
        Stage::Draining(status) => state::Stage::Draining(status.clone()),
        Stage::Exited(status) => state::Stage::Exited(status.clone()),
        Stage::Setting(..) | Stage::Failing(..) | Stage::Starting(..) | Stage::Changing => return None,
    })
}

fn container<'a>(
    serial: u64,
    child: &'a Child,
    files: &mut Files<'a>,
    programs: &mut Vec<Rc<seccomp::Program>>,
) -> Option<state::Container> {
    let stage = stage(child)?;
    if let Some(nascent) = child.nascent() {
        files.add_borrowed(nascent.sync());
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
    let Loss { total, unwritten, tell_at } = output.loss.clone();
    let sink = state::Sink { file: output.log.as_ref().map(|fd| files.add(fd)), total, unwritten, tell_at };
    state::Output { line_max: output.line_max, streams, sink, taps, apart: output.place.apart.is_some() }
}

/// What a command left has no process: a program that expects one gets any descriptor, and does not use it.
fn command<'a>(serial: u64, command: &'a Command, listener: &'a impl AsFd, files: &mut Files<'a>) -> state::Command {
    let (pid, pidfd, sync) = match command.nascent() {
        Some(nascent) => (nascent.pid, files.add(&nascent.pidfd), files.add_borrowed(nascent.sync())),
        None => (0, listener.as_fd().as_raw_fd(), listener.as_fd().as_raw_fd()),
    };
    state::Command {
        serial,
        id: command.id.clone(),
        container: command.container.clone(),
        pid,
        pidfd,
        sync,
        terminal: command.terminal.as_ref().map(|fd| files.add(fd)),
        warnings: command.warnings.clone(),
        left: command.stage == CommandStage::Left,
    }
}
