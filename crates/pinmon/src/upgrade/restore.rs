//! Restoring of the monitor from a state, in the executed program.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt::Display,
    rc::Rc,
    time::Duration,
};

use cgroup::{Group, GroupPath, Hierarchies};
use container::ContainerSetup;
use monitor_api::{Attachments, Connection, Failure, FailureKind, Reply};
use rustix::{
    fd::OwnedFd,
    process::{Pid, Rlimit},
};
use syscall::inherited::{duplicate_inherited, take_inherited};

use super::{
    check::read_state,
    execute::become_program,
    state::{self, FdNumber, State},
};
use crate::{
    child::{Child, Stage},
    clock,
    connection::{Link, RequestId},
    epoll::Epoll,
    exec::{ExecHandle, ExecSession, ExecStage},
    hooks,
    inherited_limits::InheritedLimits,
    journals::Journals,
    log::sink::Loss,
    log_writer::order::EndPhase,
    monitor::Monitor,
    output::{Output, Stream, StreamFile},
    pipe::Pipe,
    process::in_user_namespace,
    programs::{Filter, Programs},
    serve,
    terminal::{CloseQueue, Terminals, close_queue_of},
    thaw::Thaws,
    timer::Timers,
    writers::Writers,
};

/// Implements `pinmon resume`: continues from a state, or returns it to the previous program.
///
/// `refused`: why the new program failed; this program is the previous one, executed again.
pub(crate) fn resume(state: FdNumber, previous: FdNumber, refused: Option<String>) -> Result<(), String> {
    let _ = rustix::thread::set_name(c"pinmon");
    let originals = if refused.is_some() { Originals::Take } else { Originals::Duplicate };
    match restored(state, originals) {
        Ok((mut monitor, request_id)) => {
            close_originals(state, previous, originals);
            // An earlier version may not have done it.
            serve::run_before_containers();
            monitor.resumed(request_id, refused);
            serve::run(monitor)
        }
        Err(why) => Err(return_to_previous(state, previous, &why, refused.is_some())),
    }
}

/// Executes the previous program, which can continue from the same state. Returns only if it fails, with the reason.
fn return_to_previous(state: FdNumber, previous: FdNumber, why: &str, already_returned: bool) -> String {
    if already_returned {
        return format!("continue from the state: {why}");
    }
    let program = match duplicate_inherited(previous) {
        Ok(program) => program,
        Err(error) => return format!("{why}; return to the previous program: {error}"),
    };
    use std::os::fd::AsFd;
    format!("{why}; return to the previous program: {}", become_program(program.as_fd(), &state, &previous, Some(why)))
}

fn restored(number: FdNumber, from: Originals) -> Result<(Monitor, RequestId), String> {
    let take_fd = |number| from.take_fd(number);
    let state = read_state(Originals::Duplicate.take_fd(number)?)?;
    let trees: Vec<_> =
        state.trees.iter().map(|(name, fd)| Ok((name.clone(), take_fd(*fd)?))).collect::<Result<_, String>>()?;
    let trees = during("take over the cgroup trees", Hierarchies::from_descriptors(trees))?;
    let journals = during("list journals", Journals::open(take_fd(state.directory)?))?;
    let mut programs = Programs::default();
    let filters = state.programs.iter().map(|bytes| seccomp::Program::from_bytes(bytes).map(|p| programs.share(p)));
    let filters: Vec<Rc<seccomp::Program>> = during("read seccomp programs", filters.collect())?;
    let files = state.files.map(|(current, maximum)| Rlimit { current, maximum });
    let mut monitor = Monitor {
        epoll: during("epoll", Epoll::new())?,
        listener: take_fd(state.listener)?,
        signals: serve::signals()?,
        node_mounts: state.node_mounts.map(take_fd).transpose()?,
        inherited_limits: InheritedLimits { open_files: files, oom_score_adj: state.oom_score_adj },
        journals,
        writers: Writers::default(),
        programs,
        terminals: Terminals::default(),
        timers: Timers::default(),
        link: state.link.as_ref().map(|saved| link(saved, from)).transpose()?,
        links: state.links,
        containers: BTreeMap::new(),
        execs: BTreeMap::new(),
        makers: BTreeMap::new(),
        runners: BTreeMap::new(),
        removals: BTreeMap::new(),
        ready_removals: VecDeque::new(),
        thaws: Thaws::default(),
        keyed_descriptors: BTreeMap::new(),
        unused_mounts: Default::default(),
        serials: state.serials,
        reaping: false,
        should_exit: false,
        upgrade: None,
        trees,
    };
    let State { request_id, containers, orphans, commands, kept, timers, closing, .. } = state;
    for number in closing {
        drop(monitor.terminals.close_queue.terminal(take_fd(number)?));
    }
    timers.into_iter().for_each(|(at, timer)| monitor.timers.at(at, timer));
    for (key, files) in kept {
        monitor.keyed_descriptors.insert(key, files.into_iter().map(take_fd).collect::<Result<_, _>>()?);
    }
    for saved in containers {
        let serial = saved.serial;
        let child = child(saved, &monitor, &filters, from)?;
        monitor.containers.insert(serial, child);
    }
    for saved in orphans {
        let mut output = output(saved.output, &monitor.terminals.close_queue, from, saved.serial)?;
        output.end(EndPhase::Final);
        monitor.writers.orphans.insert(saved.serial, (saved.id, output));
    }
    for saved in commands {
        if let Some(exec) = exec(&saved, &monitor, from)? {
            monitor.execs.insert(saved.serial, exec);
        }
    }
    monitor.watch_all();
    Ok((monitor, request_id))
}

impl Monitor {
    /// Starts the restored monitor: answers the request, and checks all objects once.
    fn resumed(&mut self, request_id: RequestId, refused: Option<String>) {
        let answer = match refused {
            None => Ok((Reply::Welcome(self.welcome()), Attachments::new())),
            Some(why) => {
                let version = env!("CARGO_PKG_VERSION");
                let message = format!("upgrade the monitor: {why}; pinmon {version} keeps running");
                Err(Failure::new(FailureKind::State, message))
            }
        };
        self.reassign_outputs(None, None);
        self.reply(request_id, answer);
        self.sweep_all_leftovers();
        // Children may have exited during the upgrade.
        self.reap();
    }

    /// Watches the restored objects. The epoll instance of the previous program is closed, and others may have used up
    /// the watches since.
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

/// Use of the descriptors that the state names.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Originals {
    /// Take duplicates, so that the originals remain for the previous program if this one fails.
    Duplicate,
    /// Take the originals, because there is no other program to return to.
    Take,
}

impl Originals {
    fn take_fd(self, number: FdNumber) -> Result<OwnedFd, String> {
        let owned = match self {
            Self::Duplicate => duplicate_inherited(number),
            Self::Take => take_inherited(number),
        };
        during(&format!("take over descriptor {number}"), owned)
    }
}

/// Closes the originals, which have been duplicated.
fn close_originals(state: FdNumber, previous: FdNumber, originals: Originals) {
    let take_fd = |number| Originals::Duplicate.take_fd(number);
    let state_file = take_fd(state).and_then(read_state);
    for number in [state, previous] {
        drop(take_inherited(number));
    }
    if let (Ok(state), Originals::Duplicate) = (state_file, originals) {
        state.all.into_iter().for_each(|number| drop(take_inherited(number)));
    }
}

fn link(saved: &state::Link, from: Originals) -> Result<Link, String> {
    Ok(Link::new(saved.number, Connection::new(from.take_fd(saved.fd)?), saved.greeted))
}

fn child(
    saved: state::Container,
    monitor: &Monitor,
    filters: &[Rc<seccomp::Program>],
    from: Originals,
) -> Result<Child, String> {
    let take_fd = |number| from.take_fd(number);
    let operation = format!("take over container {}", saved.id);
    let group = match saved.grouped {
        true => Some(during(
            &operation,
            GroupPath::parse(&saved.cgroup).and_then(|path| Group::open(&monitor.trees, &path)),
        )),
        false => None,
    };
    // The cgroup of an exited container may have been removed by another process.
    let group = match (group, &saved.stage) {
        (Some(Err(_)), state::Stage::Exited(_)) | (None, _) => None,
        (Some(group), _) => Some(group?),
    };
    let pidfd = saved.pidfd.map(take_fd).transpose()?;
    let (stage, pidfd, group) = match (saved.stage, pidfd, group) {
        (state::Stage::Created(sync), Some(pidfd), Some(group)) => {
            (Stage::Created(ContainerSetup::adopt(pid_of(saved.pid)?, pidfd, take_fd(sync)?, group)), None, None)
        }
        (state::Stage::Created(_), ..) => return Err(format!("{operation}: its process or cgroup is missing")),
        (state::Stage::Running, pidfd, group) => (Stage::Running, pidfd, group),
        (state::Stage::Draining(status), pidfd, group) => (Stage::Draining(status), pidfd, group),
        (state::Stage::Exited(status), pidfd, group) => (Stage::Exited(status), pidfd, group),
    };
    let filter = match saved.filter {
        state::Filter::Unknown => Filter::Unknown,
        state::Filter::None => Filter::Known(None),
        state::Filter::Program(index) => {
            let program =
                filters.get(index).ok_or_else(|| format!("{operation}: seccomp program {index} is missing"))?;
            Filter::Known(Some(Rc::clone(program)))
        }
    };
    let close_queue = monitor.terminals.close_queue.for_pod(&saved.sandbox);
    let mut output = output(saved.output, &close_queue, from, saved.serial)?;
    output.awaits_log = saved.log.awaited && output.log.is_none();
    match stage {
        Stage::Draining(_) => {
            output.end(EndPhase::Ended);
            // Its output gets the full time again.
            output.ended_at = clock::monotonic();
        }
        Stage::Exited(_) => output.end(EndPhase::Final),
        _ => {}
    }
    Ok(Child {
        output,
        stdin: saved.stdin.map(take_fd).transpose()?.map(|end| Pipe::new(end, &close_queue)),
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

fn output(saved: state::Output, close_queue: &CloseQueue, from: Originals, serial: u64) -> Result<Output, String> {
    let take_fd = |number| from.take_fd(number);
    let state::Sink { file, total, unwritten, report_at } = saved.sink;
    let mut output = Output::new(file.map(take_fd).transpose()?, saved.line_max);
    output.loss = Loss { total, unwritten, report_at };
    output.place.dedicated = saved.apart.then_some(serial);
    for state::Stream { kind, fd, terminal, .. } in saved.streams {
        output.streams.push(Stream { kind, file: StreamFile::new(take_fd(fd)?, terminal, close_queue) });
    }
    for state::Tap { number, kind, pipe } in saved.taps {
        output.restore_tap(number, kind, take_fd(pipe)?);
    }
    Ok(output)
}

/// Restores an exec. `None`: the cgroup of its leftover processes was removed.
fn exec(saved: &state::Exec, monitor: &Monitor, from: Originals) -> Result<Option<ExecSession>, String> {
    let take_fd = |number| from.take_fd(number);
    let group = monitor.containers.values().find(|child| child.id == saved.container).and_then(Child::group);
    let group = match group.map(|group| group.open_exec_group(&saved.id)) {
        Some(Ok(group)) => group,
        _ if saved.left => return Ok(None),
        Some(Err(error)) => return Err(format!("take over exec {}: {error}", saved.id)),
        None => return Err(format!("take over exec {}: its container {} is missing", saved.id, saved.container)),
    };
    let handle = match saved.left {
        true => ExecHandle::Group(group),
        false => {
            let (pidfd, sync) = (take_fd(saved.pidfd)?, take_fd(saved.sync)?);
            ExecHandle::Process(Box::new(ContainerSetup::adopt(pid_of(saved.pid)?, pidfd, sync, group)))
        }
    };
    let close_queue = close_queue_of(&monitor.terminals, &monitor.containers, &saved.container);
    Ok(Some(ExecSession {
        handle,
        deadline: Duration::ZERO,
        id: saved.id.clone(),
        container: saved.container.clone(),
        terminal: saved.terminal.map(take_fd).transpose()?.map(|master| close_queue.terminal(master)),
        warnings: saved.warnings.clone(),
        stage: if saved.left { ExecStage::Leftover } else { ExecStage::Running },
        failure: None,
    }))
}

fn pid_of(number: i32) -> Result<Pid, String> {
    Some(number).filter(|number| *number > 0).and_then(Pid::from_raw).ok_or_else(|| format!("{number} is not a pid"))
}
