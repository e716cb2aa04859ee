//! Restoring of the monitor from a state, in the executed program.

use std::{fmt::Display, rc::Rc, time::Duration};

use cgroup::{Group, GroupPath, Hierarchies};
use container::ContainerSetup;
use monitor_api::{Attachments, Connection, Failure, FailureKind, Reply};
use rustix::{
    fd::{AsFd, OwnedFd},
    process::{Pid, Rlimit},
};
use syscall::inherited::{duplicate_inherited, take_inherited};

use super::{
    check::read_state,
    execute::become_program,
    state::{self, FdNumber, State},
};
use crate::{
    clock,
    closing::{CloseQueue, Closers, Pipe, Terminal},
    containers::{Container, Stage},
    event::{Epoll, Timers},
    exec::{ExecHandle, ExecSession, ExecStage},
    hooks::{self, HookRunners},
    inherited_limits::InheritedLimits,
    link::{Link, Peer, RequestId, welcome},
    log::{limit::SizeLimit, sink::Loss},
    log_writer::order::EndPhase,
    monitor::{Monitor, Node, Sources},
    output::{Output, Outputs, Stream, StreamFile},
    priority,
    process::in_user_namespace,
    programs::{Filter, Programs},
    services::Services,
    signals,
};

/// Implements `pinmon resume`: continues from a state, or returns it to the previous program.
///
/// `refused`: why the new program failed; this program is the previous one, executed again.
pub(crate) fn resume(state: FdNumber, previous: FdNumber, refused: Option<String>) -> Result<Monitor, String> {
    let _ = rustix::thread::set_name(c"pinmon");
    let originals = if refused.is_some() { Originals::Take } else { Originals::Duplicate };
    match restore(state, originals) {
        Ok((mut monitor, request_id)) => {
            close_originals(state, previous, originals);
            // An earlier version may not have done it.
            priority::run_before_containers();
            check_all(&mut monitor, request_id, refused);
            Ok(monitor)
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
    format!("{why}; return to the previous program: {}", become_program(program.as_fd(), &state, &previous, Some(why)))
}

fn restore(number: FdNumber, from: Originals) -> Result<(Monitor, RequestId), String> {
    let take_fd = |number| from.take_fd(number);
    let state = read_state(Originals::Duplicate.take_fd(number)?)?;
    let trees: Vec<_> =
        state.trees.iter().map(|(name, fd)| Ok((name.clone(), take_fd(*fd)?))).collect::<Result<_, String>>()?;
    let trees = during("take over the cgroup trees", Hierarchies::from_descriptors(trees))?;
    let outputs = during("list journals", Outputs::open(take_fd(state.directory)?))?;
    let mut programs = Programs::default();
    let filters = state.programs.iter().map(|bytes| seccomp::Program::from_bytes(bytes).map(|p| programs.share(p)));
    let filters: Vec<Rc<seccomp::Program>> = during("read seccomp programs", filters.collect())?;
    let open_files = state.files.map(|(current, maximum)| Rlimit { current, maximum });
    let inherited_limits = InheritedLimits { open_files, oom_score_adj: state.oom_score_adj };
    let closers = Closers::default();
    let peer = state.link.as_ref().map(|saved| peer(saved, from)).transpose()?;
    let services = Services {
        epoll: during("epoll", Epoll::new())?,
        timers: Timers::default(),
        link: Link::new(state.links, peer, closers.queue.clone()),
        closers,
        serials: state.serials,
    };
    let sources = Sources { listener: take_fd(state.listener)?, signals: signals::block()? };
    let node = Node { trees, inherited_limits, programs };
    let hooks = HookRunners::new(state.node_mounts.map(take_fd).transpose()?);
    let mut monitor = Monitor::new(services, sources, node, outputs, hooks);
    let request_id = state.request_id;
    restore_objects(&mut monitor, state, &filters, from)?;
    Ok((monitor, request_id))
}

/// Restores and watches all objects of the state. The epoll instance of the previous program is closed, and others may
/// have used up the watches since.
fn restore_objects(
    monitor: &mut Monitor,
    state: State,
    filters: &[Rc<seccomp::Program>],
    from: Originals,
) -> Result<(), String> {
    let take_fd = |number| from.take_fd(number);
    let State { containers, explained_oom_kills, orphans, commands, kept, timers, closing, .. } = state;
    let close_queue = monitor.services.closers.queue.clone();
    for number in closing {
        close_queue.put(Rc::new(take_fd(number)?));
    }
    timers.into_iter().for_each(|(at, timer)| monitor.services.timers.at(at, timer));
    for (key, files) in kept {
        monitor.keyed_descriptors.insert(key, files.into_iter().map(take_fd).collect::<Result<_, _>>()?);
    }
    for (slice, explained) in explained_oom_kills {
        monitor.oom_kills.restore_slice(&slice, explained);
    }
    for saved in containers {
        let (serial, oom_kills) = (saved.serial, saved.oom_kills);
        let (container, output) = container(saved, monitor, filters, from)?;
        let (cgroup, ended) = (&container.description.cgroup, container.has_ended());
        match oom_kills {
            Some(counted) => monitor.oom_kills.restore_scope(serial, cgroup, counted, ended),
            None => monitor.oom_kills.adopt(&monitor.node.trees, serial, cgroup, ended),
        }
        monitor.containers.insert(serial, container);
        monitor.outputs.map.insert(serial, output);
    }
    for saved in orphans {
        let mut output = output(&saved.id, saved.output, &close_queue, from, saved.serial)?;
        output.end(EndPhase::Final);
        monitor.outputs.map.restore_orphan(saved.serial, output);
    }
    for saved in commands {
        if let Some(exec) = exec(&saved, monitor, from)? {
            monitor.execs.insert(saved.serial, exec);
        }
    }
    monitor.services.watch_link();
    for serial in monitor.containers.serials() {
        monitor.containers.watch(serial, &mut monitor.services);
    }
    Ok(())
}

/// Starts the restored monitor: answers the request, and checks all objects once.
fn check_all(monitor: &mut Monitor, request_id: RequestId, refused: Option<String>) {
    let answer = match refused {
        None => Ok((Reply::Welcome(welcome()), Attachments::new())),
        Some(why) => {
            let version = env!("CARGO_PKG_VERSION");
            let message = format!("upgrade the monitor: {why}; pinmon {version} keeps running");
            Err(Failure::new(FailureKind::State, message))
        }
    };
    monitor.outputs.reassign(None, None, &mut monitor.services);
    monitor.services.reply(request_id, answer);
    monitor.sweep_all_leftovers();
    // Children may have exited during the upgrade.
    monitor.reap();
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

fn peer(saved: &state::Link, from: Originals) -> Result<Peer, String> {
    Ok(Peer::new(saved.number, Connection::new(from.take_fd(saved.fd)?), saved.greeted))
}

fn container(
    saved: state::Container,
    monitor: &Monitor,
    filters: &[Rc<seccomp::Program>],
    from: Originals,
) -> Result<(Container, Output), String> {
    let take_fd = |number| from.take_fd(number);
    let mut description = saved.description;
    let operation = format!("take over container {}", description.id);
    let group = saved.grouped.then(|| {
        let path = GroupPath::parse(&description.cgroup);
        during(&operation, path.and_then(|path| Group::open(&monitor.node.trees, &path)))
    });
    // The cgroup of a container that has exited may have been removed by another process, also if its exit was not
    // handled yet.
    let group = match (group, &saved.stage) {
        (
            Some(Err(_)),
            state::Stage::Waiting | state::Stage::Running | state::Stage::Draining(_) | state::Stage::Exited(_),
        ) => None,
        (group, _) => group.transpose()?,
    };
    let filter = filter(saved.filter, filters).map_err(|why| format!("{operation}: {why}"))?;
    let close_queue = monitor.services.closers.queue.for_pod(&description.sandbox);
    let mut output = output(&description.id, saved.output, &close_queue, from, saved.serial)?;
    output.awaits_log = description.log.awaited && output.log.is_none();
    let pidfd = saved.pidfd.map(take_fd).transpose()?;
    let (stage, pidfd, group) = match (saved.stage, pidfd, group) {
        (state::Stage::Created(sync), Some(pidfd), Some(group)) => {
            let pid = pid_of(description.pid.cast_signed())?;
            (Stage::Created(ContainerSetup::adopt(pid, pidfd, take_fd(sync)?, group)), None, None)
        }
        (state::Stage::Created(_), ..) => return Err(format!("{operation}: its process or cgroup is missing")),
        (state::Stage::Waiting, pidfd, group) => (Stage::Waiting, pidfd, group),
        (state::Stage::Running, pidfd, group) => (Stage::Running, pidfd, group),
        (state::Stage::Draining(status), pidfd, group) => {
            output.end(EndPhase::Ended);
            // Its output gets the full time again.
            output.ended_at = clock::monotonic();
            (Stage::Draining(status), pidfd, group)
        }
        (state::Stage::Exited(status), pidfd, group) => {
            output.end(EndPhase::Final);
            (Stage::Exited(status), pidfd, group)
        }
    };
    description.user_namespace.get_or_insert_with(|| in_user_namespace(description.pid));
    let container = Container {
        pidfd,
        group,
        stdin: saved.stdin.map(take_fd).transpose()?.map(|end| Pipe::new(end, &close_queue)),
        pod_init: saved.pod_init,
        hooks_time: hooks::UNKNOWN_TIME,
        adopted: true,
        stage,
        warnings: saved.warnings,
        deletes: saved.deletes,
        ..Container::new(description, filter)
    };
    Ok((container, output))
}

fn filter(saved: state::Filter, filters: &[Rc<seccomp::Program>]) -> Result<Filter, String> {
    Ok(match saved {
        state::Filter::Unknown => Filter::Unknown,
        state::Filter::None => Filter::Known(None),
        state::Filter::Program(index) => {
            let program = filters.get(index).ok_or_else(|| format!("seccomp program {index} is missing"))?;
            Filter::Known(Some(Rc::clone(program)))
        }
    })
}

fn output(
    container: &str,
    saved: state::Output,
    close_queue: &CloseQueue,
    from: Originals,
    serial: u64,
) -> Result<Output, String> {
    let take_fd = |number| from.take_fd(number);
    let state::Sink { file, total, unwritten, report_at } = saved.sink;
    let mut output = Output::new(container, file.map(take_fd).transpose()?, saved.line_max);
    if let Some((limit, directory)) = saved.limit {
        output.limit = Some(SizeLimit { limit, directory: take_fd(directory)? });
    }
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
    let container = monitor.containers.find(&saved.container).map(|(_, container)| container);
    let group = container.and_then(Container::group).map(|group| group.open_exec_group(&saved.id));
    let group = match group {
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
    let sandbox = container.map_or("", |container| container.description.sandbox.as_str());
    let close_queue = monitor.services.closers.queue.for_pod(sandbox);
    let terminal = saved.terminal.map(take_fd).transpose()?.map(|master| Terminal::new(master, &close_queue));
    Ok(Some(ExecSession {
        handle,
        close_queue,
        deadline: Duration::ZERO,
        id: saved.id.clone(),
        container: saved.container.clone(),
        terminal,
        warnings: saved.warnings.clone(),
        stage: if saved.left { ExecStage::Leftover } else { ExecStage::Running },
        failure: None,
    }))
}

fn pid_of(number: i32) -> Result<Pid, String> {
    Some(number).filter(|number| *number > 0).and_then(Pid::from_raw).ok_or_else(|| format!("{number} is not a pid"))
}
