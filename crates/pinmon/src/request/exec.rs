use std::rc::Rc;

use container::{ContainerSetup, Target};
use monitor_api::{Attachments, Exec, Failure, FailureKind, Role};
use seccomp::Program;

use super::{Answer, create::stdio};
use crate::{
    clock,
    containers::{Container, Stage},
    event::Timer,
    exec::{DEADLINE, ExecHandle, ExecSession, ExecStage},
    failure::{no_container, of_container, state, system},
    link::RequestId,
    monitor::Monitor,
    process::{has_seccomp, oom_score_adj},
    programs::Filter,
    removal::AfterRemoval,
};

/// Executes a process in a container. Answered when execve succeeded or failed.
pub(super) fn exec(
    monitor: &mut Monitor,
    request_id: RequestId,
    mut exec: Exec,
    attachments: &mut Attachments,
) -> Answer {
    let id = &exec.exec;
    if monitor.execs.find(id).is_some() {
        return Err(Failure::new(FailureKind::AlreadyExists, format!("exec {id} already exists")));
    }
    let setup = clone_process(monitor, &mut exec, attachments)?;
    let Exec { exec: id, container, .. } = exec;
    let sandbox =
        monitor.containers.find(&container).map_or("", |(_, container)| container.description.sandbox.as_str());
    let close_queue = monitor.services.closers.queue.for_pod(sandbox);
    let serial = monitor.services.next_serial();
    let deadline = clock::monotonic() + DEADLINE;
    monitor.services.timers.at(deadline, Timer::Command(serial));
    let session = ExecSession {
        id,
        container,
        close_queue,
        handle: ExecHandle::Process(Box::new(setup)),
        terminal: None,
        warnings: Vec::new(),
        stage: ExecStage::Starting(request_id),
        deadline,
        failure: None,
    };
    monitor.execs.insert(serial, session);
    monitor.execs.watch(serial, &mut monitor.services);
    Ok(None)
}

/// Creates the cgroup and clones the child. Its messages are handled by the event loop.
fn clone_process(
    monitor: &mut Monitor,
    exec: &mut Exec,
    attachments: &mut Attachments,
) -> Result<ContainerSetup, Failure> {
    let Exec { exec: id, container: container_id, process } = exec;
    let attached = attachments.take(Role::Seccomp).map(|file| monitor.node.programs.read(&file)).transpose()?;
    let (_, container) = monitor.containers.find(container_id).ok_or_else(|| no_container("exec in", container_id))?;
    if let Some(why) = monitor.execs.limit(container_id) {
        return Err(state("exec in", container_id, &why));
    }
    let (Stage::Running, Some(pidfd), Some(group)) = (&container.stage, container.pidfd(), container.group()) else {
        return Err(state("exec in", container_id, "the container is not running"));
    };
    let filter = filter(container, attached)?;
    let limits = &monitor.node.inherited_limits;
    // Otherwise it would inherit the value of the monitor, which is protected from the OOM killer.
    if process.oom_score_adj.is_none() {
        process.oom_score_adj = oom_score_adj(container.pid()).or(Some(limits.oom_score_adj));
    }
    limits.restore_open_files(process);
    let operation = format!("exec in container {container_id}");
    let exec_group = group.exec_group(id).map_err(|e| system(&operation, e))?;
    // The CRI supports neither personality nor memory policy.
    let target = Target { user_namespace: container.has_user_namespace(), ..pidfd.into() };
    let filter = filter.as_deref().map(Into::into);
    let cloned = container::exec(exec_group, target, process, stdio(attachments), filter);
    monitor.services.closers.cloned();
    match cloned {
        Ok(setup) => Ok(setup),
        Err(error) => {
            // The container created cgroups in that of the exec first.
            if let Ok(group) = group.open_exec_group(id) {
                monitor.remove_group(group, AfterRemoval::Nothing);
            }
            Err(monitor.exec_failure(container_id, of_container(&operation, &error)))
        }
    }
}

/// Returns the seccomp program for an exec: the attached one, or that of the container. The program of an adopted
/// container is known only to the daemon.
fn filter(container: &Container, attached: Option<Rc<Program>>) -> Result<Option<Rc<Program>>, Failure> {
    match (attached, &container.filter) {
        (Some(program), _) => Ok(Some(program)),
        (None, Filter::Known(program)) => Ok(program.clone()),
        (None, Filter::Unknown) if has_seccomp(container.pid()) == Some(false) => Ok(None),
        (None, Filter::Unknown) => {
            let why = "it has a seccomp program that this monitor does not have; attach it to the request";
            Err(state("exec in", &container.description.id, why))
        }
    }
}
