//! From a state to the monitor again, in the program that was executed.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt::Display,
    rc::Rc,
    time::Duration,
};

use cgroup::{Group, GroupPath, Hierarchies};
use container::Nascent;
use monitor_api::{Attachments, Connection, Failure, FailureKind, Reply};
use rustix::{fd::OwnedFd, process::Rlimit};
use syscall::inherited::{duplicate_inherited, take_inherited};

use super::{
    check::read,
    execute::become_program,
    state::{self, Number, State},
};
use crate::{
    child::{Child, Stage},
    clock,
    command::{Command, CommandStage, Held},
    connection::{Asked, Link},
    epoll::Epoll,
    hooks,
    inherit::Inherit,
    journals::Journals,
    log::sink::Loss,
    log_writer::order::End,
    monitor::Monitor,
    output::{Output, Stream, StreamFile},
    pipe::Pipe,
    process::in_user_namespace,
    programs::{Filter, Programs},
    serve,
    terminal::{Closing, Terminals, closing_of},
    thaw::Thaws,
    timer::Timers,
    writers::Writers,
};

/// `pinmon resume`: goes on from a state, or gives it back to the program before. `refused`: the program that was to
/// take over could not, and this is the one before.
pub(crate) fn resume(state: Number, previous: Number, refused: Option<String>) -> Result<(), String> {
    let _ = rustix::thread::set_name(c"pinmon");
    let originals = if refused.is_some() { Originals::Taken } else { Originals::Kept };
    match restored(state, originals) {
        Ok((mut monitor, asked)) => {
            close_originals(state, previous, originals);
            // An earlier version may not have done it.
            serve::run_before_containers();
            monitor.resumed(asked, refused);
            serve::run(monitor)
        }
        Err(why) => Err(back(state, previous, &why, refused.is_some())),
    }
}

/// Executes the program before, which can go on from the same state. Returns only with the reason why not.
fn back(state: Number, previous: Number, why: &str, was_back: bool) -> String {
    if was_back {
        return format!("go on from the state: {why}");
    }
    let program = match duplicate_inherited(previous) {
        Ok(program) => program,
        Err(error) => return format!("{why}; return to the program before: {error}"),
    };
    use std::os::fd::AsFd;
    format!("{why}; return to the program before: {}", become_program(program.as_fd(), &state, &previous, Some(why)))
}

fn restored(number: Number, from: Originals) -> Result<(Monitor, Asked), String> {
    let own = |number| from.own(number);
    let state = read(Originals::Kept.own(number)?)?;
    let trees: Vec<_> =
        state.trees.iter().map(|(name, fd)| Ok((name.clone(), own(*fd)?))).collect::<Result<_, String>>()?;
    let trees = during("take over the cgroup trees", Hierarchies::from_descriptors(trees))?;
    let journals = during("list journals", Journals::open(own(state.directory)?))?;
    let mut programs = Programs::default();
    let filters = state.programs.iter().map(|bytes| seccomp::Program::from_bytes(bytes).map(|p| programs.share(p)));
    let filters: Vec<Rc<seccomp::Program>> = during("read seccomp programs", filters.collect())?;
    let files = state.files.map(|(current, maximum)| Rlimit { current, maximum });
    let mut monitor = Monitor {
        epoll: during("epoll", Epoll::new())?,
        listener: own(state.listener)?,
        signals: serve::signals()?,
        node_mounts: state.node_mounts.map(own).transpose()?,
        inherit: Inherit { files, oom_score_adj: state.oom_score_adj },
        journals,
        writers: Writers::default(),
        programs,
        terminals: Terminals::default(),
        timers: Timers::default(),
        link: state.link.as_ref().map(|saved| link(saved, from)).transpose()?,
        links: state.links,
        containers: BTreeMap::new(),
        commands: BTreeMap::new(),
        makers: BTreeMap::new(),
        runners: BTreeMap::new(),
        removals: BTreeMap::new(),
        removing: VecDeque::new(),
        thaws: Thaws::default(),
        kept: BTreeMap::new(),
        unused_mounts: Default::default(),
        serials: state.serials,
        reaping: false,
        over: false,
        upgrade: None,
        trees,
    };
    let State { asked, containers, orphans, commands, kept, timers, closing, .. } = state;
    for number in closing {
        drop(monitor.terminals.closing.own(own(number)?));
    }
    timers.into_iter().for_each(|(at, timer)| monitor.timers.at(at, timer));
    for (key, files) in kept {
        monitor.kept.insert(key, files.into_iter().map(own).collect::<Result<_, _>>()?);
    }
    for saved in containers {
        let serial = saved.serial;
        let child = child(saved, &monitor, &filters, from)?;
        monitor.containers.insert(serial, child);
    }
    for saved in orphans {
        let mut output = output(saved.output, &monitor.terminals.closing, from, saved.serial)?;
        output.end(End::Final);
        monitor.writers.orphans.insert(saved.serial, (saved.id, output));
    }
    for saved in commands {
        if let Some(command) = command(&saved, &monitor, from)? {
            monitor.commands.insert(saved.serial, command);
        }
    }
    monitor.watch_all();
    Ok((monitor, asked))
}

impl Monitor {
    /// The first steps of the new program: answers who asked for it, and looks at everything once.
    fn resumed(&mut self, asked: Asked, refused: Option<String>) {
        let answer = match refused {
            None => Ok((Reply::Welcome(self.welcome()), Attachments::new())),
            Some(why) => {
                let version = env!("CARGO_PKG_VERSION");
                let message = format!("upgrade the monitor: {why}; pinmon {version} goes on");
                Err(Failure::new(FailureKind::State, message))
            }
        };
        self.renew_outputs(None, None);
        self.reply(asked, answer);
        self.look_after_all_left();
        // Whoever ended while nobody listened.
        self.reap();
    }

    /// What was taken over. The epoll instance of the program before is gone, and others may have its watches by now.
    fn watch_all(&mut self) {
        self.watch_link();
        for serial in self.containers.keys().copied().collect::<Vec<u64>>() {
            self.watch(serial);
        }
    }
}

fn during<T, E: Display>(operation: &str, result: Result<T, E>) -> Result<T, String> {
    result.map_err(|error| format!("{operation}: {error}"))
}

/// What becomes of the descriptors that the state names.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Originals {
    /// Duplicates are taken over, so that all is as it was for the program before, should this one fail.
    Kept,
    /// They themselves: nobody is left to return to.
    Taken,
}

impl Originals {
    fn own(self, number: Number) -> Result<OwnedFd, String> {
        let owned = match self {
            Self::Kept => duplicate_inherited(number),
            Self::Taken => take_inherited(number),
        };
        during(&format!("take over descriptor {number}"), owned)
    }
}

/// What is owned has its duplicate now; the rest would only hold files open.
fn close_originals(state: Number, previous: Number, originals: Originals) {
    let own = |number| Originals::Kept.own(number);
    let read = own(state).and_then(read);
    for number in [state, previous] {
        drop(take_inherited(number));
    }
    if let (Ok(read), Originals::Kept) = (read, originals) {
        read.all.into_iter().for_each(|number| drop(take_inherited(number)));
    }
}

fn link(saved: &state::Link, from: Originals) -> Result<Link, String> {
    Ok(Link::new(saved.number, Connection::new(from.own(saved.fd)?), saved.greeted))
}

fn child(
    saved: state::Container,
    monitor: &Monitor,
    filters: &[Rc<seccomp::Program>],
    from: Originals,
) -> Result<Child, String> {
    let own = |number| from.own(number);
    let what = format!("take over container {}", saved.id);
    let group = match saved.grouped {
        true => {
            Some(during(&what, GroupPath::parse(&saved.cgroup).and_then(|path| Group::open(&monitor.trees, &path))))
        }
        false => None,
    };
    // The group of one that ended may have been taken away by whoever owns its parent.
    let group = match (group, &saved.stage) {
        (Some(Err(_)), state::Stage::Exited(_)) | (None, _) => None,
        (Some(group), _) => Some(group?),
    };
    let pidfd = saved.pidfd.map(own).transpose()?;
    let (stage, pidfd, group) = match (saved.stage, pidfd, group) {
        (state::Stage::Created(sync), Some(pidfd), Some(group)) => {
            (Stage::Created(Nascent::adopt(saved.pid, pidfd, own(sync)?, group)), None, None)
        }
        (state::Stage::Created(_), ..) => return Err(format!("{what}: it has no process or no cgroup")),
        (state::Stage::Running, pidfd, group) => (Stage::Running, pidfd, group),
        (state::Stage::Draining(status), pidfd, group) => (Stage::Draining(status), pidfd, group),
        (state::Stage::Exited(status), pidfd, group) => (Stage::Exited(status), pidfd, group),
    };
    let filter = match saved.filter {
        state::Filter::Unknown => Filter::Unknown,
        state::Filter::None => Filter::Known(None),
        state::Filter::Program(index) => {
            let program = filters.get(index).ok_or_else(|| format!("{what}: no seccomp program {index}"))?;
            Filter::Known(Some(Rc::clone(program)))
        }
    };
    let closing = monitor.terminals.closing.of(&saved.sandbox);
    let mut output = output(saved.output, &closing, from, saved.serial)?;
    output.awaits_log = saved.log.awaited && output.log.is_none();
    match stage {
        Stage::Draining(_) => {
            output.end(End::Ended);
            // Its output has its time again.
            output.ended_at = clock::monotonic();
        }
        Stage::Exited(_) => output.end(End::Final),
        _ => {}
    }
    Ok(Child {
        output,
        stdin: saved.stdin.map(own).transpose()?.map(|end| Pipe::new(end, &closing)),
        id: saved.id,
        sandbox: saved.sandbox,
        cgroup: saved.cgroup,
        pid: saved.pid,
        start_time: saved.start_time,
        pidfd,
        group,
        log: saved.log,
        filter,
        hooks: saved.hooks,
        pod_init: saved.pod_init,
        adopted: true,
        stage,
        warnings: saved.warnings,
        deletes: saved.deletes,
        user_namespace: saved.user_namespace.unwrap_or_else(|| in_user_namespace(saved.pid.unsigned_abs())),
        hooks_time: hooks::UNKNOWN_TIME,
        removing: false,
    })
}

fn output(saved: state::Output, closing: &Closing, from: Originals, serial: u64) -> Result<Output, String> {
    let own = |number| from.own(number);
    let state::Sink { file, total, unwritten, tell_at } = saved.sink;
    let mut output = Output::new(file.map(own).transpose()?, saved.line_max);
    output.loss = Loss { total, unwritten, tell_at };
    output.place.apart = saved.apart.then_some(serial);
    for state::Stream { kind, fd, terminal, .. } in saved.streams {
        output.streams.push(Stream { kind, file: StreamFile::new(own(fd)?, terminal, closing) });
    }
    for state::Tap { number, kind, pipe } in saved.taps {
        output.restore_tap(number, kind, own(pipe)?);
    }
    Ok(output)
}

/// `None`: the group of what a command left is gone.
fn command(saved: &state::Command, monitor: &Monitor, from: Originals) -> Result<Option<Command>, String> {
    let own = |number| from.own(number);
    let group = monitor.containers.values().find(|child| child.id == saved.container).and_then(Child::group);
    let group = match group.map(|group| group.open_exec_group(&saved.id)) {
        Some(Ok(group)) => group,
        _ if saved.left => return Ok(None),
        Some(Err(error)) => return Err(format!("take over command {}: {error}", saved.id)),
        None => return Err(format!("take over command {}: its container {} is gone", saved.id, saved.container)),
    };
    let held = match saved.left {
        true => Held::Group(group),
        false => {
            let (pidfd, sync) = (own(saved.pidfd)?, own(saved.sync)?);
            Held::Process(Box::new(Nascent::adopt(saved.pid, pidfd, sync, group)))
        }
    };
    let closing = closing_of(&monitor.terminals, &monitor.containers, &saved.container);
    Ok(Some(Command {
        held,
        deadline: Duration::ZERO,
        id: saved.id.clone(),
        container: saved.container.clone(),
        terminal: saved.terminal.map(own).transpose()?.map(|master| closing.own(master)),
        warnings: saved.warnings.clone(),
        stage: if saved.left { CommandStage::Left } else { CommandStage::Running },
        failure: None,
    }))
}
