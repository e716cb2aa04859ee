use cgroup::{Group, GroupPath};
use container::ContainerSetup;
use monitor_api::{Adopt, Attachments, ContainerDescription, Failure, Holding, HoldingState, Reply, Role};
use rustix::{
    fd::OwnedFd,
    process::{Pid, PidfdFlags, pidfd_open},
};

use super::{
    Answer,
    create::{check_new, output},
    keep::keep,
};
use crate::{
    closing::{CloseQueue, Pipe},
    containers::{Container, Stage},
    failure::{invalid, system},
    hooks,
    log_writer::order::EndPhase,
    monitor::Monitor,
    output::Output,
    process::{ProcessExit, in_user_namespace, start_time},
    programs::Filter,
};

/// Takes over an object of a monitor that died.
pub(super) fn adopt(monitor: &mut Monitor, adopt: Adopt, mut attachments: Attachments) -> Answer {
    let Adopt { holding } = adopt;
    if holding.state == HoldingState::Kept {
        return keep(monitor, holding.container.id, attachments);
    }
    let answer = adopt_container(monitor, holding, &mut attachments);
    // Descriptors of a refused adoption.
    monitor.services.closers.queue.release(attachments);
    answer
}

fn adopt_container(monitor: &mut Monitor, holding: Holding, attachments: &mut Attachments) -> Answer {
    let Holding { container: mut description, state } = holding;
    check_new(monitor, &description.id)?;
    let operation = format!("adopt container {}", description.id);
    let close_queue = monitor.services.closers.queue.for_pod(&description.sandbox);
    let mut output = adopted_output(monitor, &description, attachments, &close_queue)
        .map_err(|e| system(format!("{operation}: prepare output"), e))?;
    if matches!(state, HoldingState::Exited(_)) {
        output.end(EndPhase::Final);
    }
    let filter = match attachments.take(Role::Seccomp) {
        Some(file) => Filter::Known(Some(monitor.node.programs.read(&file)?)),
        None => Filter::Unknown,
    };
    let pidfd = attachments.take(Role::Pidfd).or_else(|| find_process(&description));
    let group = GroupPath::parse(&description.cgroup)
        .and_then(|path| Group::open(&monitor.node.trees, &path))
        .inspect_err(|error| {
            if !matches!(state, HoldingState::Exited(_)) {
                eprintln!("pinmon: {operation}: {error}");
            }
        })
        .ok();
    let pid = i32::try_from(description.pid).map_err(|_| invalid(format!("{operation}: pid {}", description.pid)))?;
    let pod_init = state == HoldingState::PodInit;
    let sync = attachments.take(Role::Sync);
    let by_runtime = description.runtime.is_some() || description.external;
    let (stage, pidfd, group) = match state {
        HoldingState::Created if by_runtime => (Stage::Waiting, pidfd, group),
        state => stage(&description.id, pid, state, (pidfd, group), sync)?,
    };
    // The log may have been reopened since the record was written.
    description.log.awaited = output.awaits_log;
    description.user_namespace.get_or_insert_with(|| in_user_namespace(description.pid));
    if let Some(pending) = &mut description.hooks {
        hooks::set_default_timeouts(&mut pending.hooks);
    }
    let container = Container {
        pidfd,
        group,
        stdin: attachments.take(Role::StdinHold).map(|end| Pipe::new(end, &close_queue)),
        pod_init,
        hooks_time: hooks::UNKNOWN_TIME,
        adopted: true,
        stage,
        ..Container::new(description, filter)
    };
    insert(monitor, container, output);
    Ok(Some(Reply::Done))
}

/// Creates the output of an adopted container, with the journals to recover first.
fn adopted_output(
    monitor: &mut Monitor,
    description: &ContainerDescription,
    attachments: &mut Attachments,
    close_queue: &CloseQueue,
) -> std::io::Result<Output> {
    let ContainerDescription { id, log, .. } = description;
    let mut output = output(id, log.clone(), attachments, close_queue)?;
    if let Some(device) = monitor.outputs.journals.device_of(id) {
        // Its last batch must be recovered before any further output is written, and by the same log writer.
        output.place.device = device;
    }
    if output.is_open() {
        output.recover = monitor.outputs.journals.take(id);
    }
    Ok(output)
}

fn insert(monitor: &mut Monitor, container: Container, output: Output) {
    let serial = monitor.services.next_serial();
    let (has_ended, has_process) = (container.has_ended(), !container.description.external);
    let process_is_gone = has_process && container.pidfd().is_none();
    monitor.oom_kills.adopt(&monitor.node.trees, serial, &container.description.cgroup, has_ended);
    monitor.containers.insert(serial, container);
    monitor.outputs.map.insert(serial, output);
    monitor.containers.watch(serial, &mut monitor.services);
    monitor.outputs.hand_over(serial, &mut monitor.services);
    if !has_ended && process_is_gone {
        // No process has this pid and start time, so its exit status is unknown.
        monitor.process_ended(serial, ProcessExit::UNKNOWN);
    } else {
        monitor.check_exit(serial, 0);
    }
}

type Parts = (Option<OwnedFd>, Option<Group>);

/// Returns the stage of an adopted container, and the pidfd and cgroup that the stage does not hold itself.
fn stage(
    id: &str,
    pid: i32,
    state: HoldingState,
    (pidfd, group): Parts,
    sync: Option<OwnedFd>,
) -> Result<(Stage, Option<OwnedFd>, Option<Group>), Failure> {
    match (state, pidfd, group, sync) {
        (HoldingState::Exited(status), pidfd, group, _) => Ok((Stage::Exited(status), pidfd, group)),
        (HoldingState::Created, Some(pidfd), Some(group), Some(sync)) => {
            let pid = Some(pid).filter(|pid| *pid > 0).and_then(Pid::from_raw);
            let pid = pid.ok_or_else(|| invalid(format!("adopt container {id}: its description has no pid")))?;
            Ok((Stage::Created(ContainerSetup::adopt(pid, pidfd, sync, group)), None, None))
        }
        (HoldingState::Created, Some(_), Some(_), None) => {
            Err(invalid(format!("adopt container {id}: it is not started, but no Sync is attached")))
        }
        (_, pidfd, group, _) => Ok((Stage::Running, pidfd, group)),
    }
}

/// Opens the process of the container, unless its pid was reused.
fn find_process(description: &ContainerDescription) -> Option<OwnedFd> {
    let pid = i32::try_from(description.pid).ok()?;
    let pidfd = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
    (start_time(pid)? == description.start_time).then_some(pidfd)
}
