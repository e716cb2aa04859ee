use std::{collections::BTreeMap, rc::Rc};

use container::{Inputs, Interpreter, Invocation, Plan, Rootfs, Stdio};
use monitor_api::{Attachments, ContainerDescription, Create, Failure, FailureKind, LogOptions, PendingHooks, Role};
use oci::{NamespaceType, Spec};
use rustix::fd::OwnedFd;
use seccomp::Program;

use super::Answer;
use crate::{
    closing::{CloseQueue, Pipe},
    containers::{Container, NESTING, Stage},
    event::Timer,
    failure::{invalid, of_container, system},
    hooks::{self, HookRunners},
    inherited_limits::InheritedLimits,
    link::RequestId,
    log::{journal::BATCH, limit::SizeLimit},
    monitor::Monitor,
    output::Output,
    programs::{Filter, Programs},
    stream::StreamKind,
};

const ID_MAX: usize = 128;
/// Shortest piece of a line. In shorter ones the prefix would be longer than the content.
const LINE_MIN: usize = 64;

/// Clones the init of a container. Answered when it is set up.
pub(super) fn create(monitor: &mut Monitor, request_id: RequestId, create: Create, attachments: Attachments) -> Answer {
    let Create { container: id, sandbox, mut spec, log, bundle, mounts, runtime, external, interpreter } = create;
    let mut attachments = monitor.mounts.take(&id, attachments);
    check_new(monitor, &id)?;
    let operation = format!("create container {id}");
    let close_queue = monitor.services.closers.queue.for_pod(&sandbox);
    let output = output(&id, log.clone(), &mut attachments, &close_queue)
        .map_err(|e| system(format!("{operation}: prepare output"), e))?;
    let stdin = attachments.take(Role::StdinHold).map(|end| Pipe::new(end, &close_queue));
    let filter = filter(&mut monitor.node.programs, &spec, attachments.take(Role::Seccomp))?;
    check_mounts(&operation, mounts, &attachments)?;
    let interpreter = take_interpreter(&operation, interpreter, &mut attachments)?;
    let description = ContainerDescription {
        cgroup: spec.linux.as_ref().and_then(|linux| linux.cgroups_path.clone()).unwrap_or_default(),
        user_namespace: Some(has_user_namespace(&spec, &attachments)),
        id,
        sandbox,
        log,
        runtime,
        external,
        ..ContainerDescription::default()
    };
    let container = Container { stdin, ..Container::new(description, Filter::Known(filter)) };
    if container.description.external {
        monitor.create_external(request_id, container, output)?;
        return Ok(None);
    }
    if container.description.runtime.is_some() {
        let terminal = spec.process.is_some_and(|process| process.terminal);
        monitor.create_with_runtime(request_id, container, output, attachments, terminal)?;
        return Ok(None);
    }
    let (container, plan) = plan_container(monitor, container, (&mut spec, interpreter), bundle, attachments)?;
    clone_init(monitor, request_id, container, output, plan)
}

/// Plans a container that the monitor creates itself.
fn plan_container(
    monitor: &Monitor,
    container: Container,
    (spec, interpreter): (&mut Spec, Option<Interpreter>),
    bundle: String,
    mut attachments: Attachments,
) -> Result<(Container, Plan), Failure> {
    let id = &container.description.id;
    let operation = format!("create container {id}");
    let filter = if let Filter::Known(filter) = &container.filter { filter.as_deref().cloned() } else { None };
    let mut inputs = inputs(&mut attachments, filter)
        .ok_or_else(|| invalid(format!("{operation}: no Rootfs descriptor is attached")))?;
    inputs.interpreter = interpreter;
    let hooks = take_hooks(&monitor.hooks, id, bundle, spec, &mut inputs.invocation)?;
    restore_limits(&monitor.node.inherited_limits, spec);
    let plan = plan(&operation, spec, inputs)?;
    let description = ContainerDescription { hooks, ..container.description };
    let (hooks_time, warnings) = (hooks::container_hooks_time(spec), plan.warnings().to_vec());
    Ok((Container { description, hooks_time, warnings, ..container }, plan))
}

/// Takes the interpreter of a container that has one.
fn take_interpreter(
    operation: &str,
    arguments: Option<Vec<String>>,
    attachments: &mut Attachments,
) -> Result<Option<Interpreter>, Failure> {
    let code = attachments.take(Role::Code);
    match (arguments, attachments.take(Role::Interpreter)) {
        (None, _) => Ok(None),
        (Some(arguments), Some(program)) => Ok(Some(Interpreter { program, arguments, code })),
        (Some(_), None) => Err(invalid(format!("{operation}: no Interpreter descriptor is attached"))),
    }
}

/// Fails if not all mounts were received. A volume without its mount would be mounted by its path.
fn check_mounts(operation: &str, sent: Option<usize>, attachments: &Attachments) -> Result<(), Failure> {
    let received = attachments.iter().filter(|(role, _)| matches!(role, Role::Mount(_))).count();
    match sent.filter(|sent| *sent != received) {
        None => Ok(()),
        Some(sent) => {
            let message = format!("{operation}: {received} of {sent} mounts received; try again");
            Err(Failure::new(FailureKind::State, message))
        }
    }
}

/// Whether the container has its own user namespace, new or joined.
fn has_user_namespace(spec: &Spec, attachments: &Attachments) -> bool {
    let is_attached = attachments.iter().any(|(role, _)| *role == Role::Namespace(NamespaceType::User));
    is_attached || spec.has_namespace(NamespaceType::User)
}

/// Validates the spec of a container, and plans its creation.
fn plan(operation: &str, spec: &Spec, mut inputs: Inputs) -> Result<Plan, Failure> {
    inputs.invocation.nesting = Some(NESTING);
    let plan = Plan::new(spec, inputs).map_err(|e| of_container(operation, &e))?;
    if plan.mounts_host_file_systems() {
        // Mounting them here would wait for their disks.
        return Err(invalid(format!(
            "{operation}: mounts of directories or devices of the host must be attached as descriptors"
        )));
    }
    Ok(plan)
}

/// Replaces the limits of the monitor in the spec, unless it has its own.
fn restore_limits(limits: &InheritedLimits, spec: &mut Spec) {
    if let Some(process) = &mut spec.process {
        process.oom_score_adj.get_or_insert(limits.oom_score_adj);
        limits.restore_open_files(process);
    }
}

/// Creates the cgroup and clones the child. Its messages are handled by the event loop.
pub(super) fn clone_init(
    monitor: &mut Monitor,
    request_id: RequestId,
    mut container: Container,
    output: Output,
    plan: Plan,
) -> Answer {
    let operation = format!("create container {}", container.description.id);
    let serial = monitor.services.next_serial();
    monitor.oom_kills.add(&monitor.node.trees, serial, &container.description.cgroup);
    let setup = container::create(&monitor.node.trees, plan);
    monitor.services.closers.cloned();
    let setup = setup.map_err(|e| {
        monitor.oom_kills.remove(&monitor.node.trees, serial, &container.description.cgroup);
        of_container(&operation, &e)
    })?;
    container.set_pid(setup.pid.as_raw_pid());
    monitor.services.timers.after(container.setup_time(), Timer::SetUp(serial));
    container.stage = Stage::SettingUp(setup, request_id);
    monitor.containers.insert(serial, container);
    monitor.outputs.map.insert(serial, output);
    monitor.containers.watch(serial, &mut monitor.services);
    Ok(None)
}

/// Checks that this id is valid and not in use.
pub(super) fn check_new(monitor: &Monitor, id: &str) -> Result<(), Failure> {
    check_id(id)?;
    if monitor.containers.find(id).is_some() {
        return Err(Failure::new(FailureKind::AlreadyExists, format!("container {id} already exists")));
    }
    Ok(())
}

/// Checks that this id is valid. It may be an argument of an OCI runtime.
pub(super) fn check_id(id: &str) -> Result<(), Failure> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if id.is_empty() || id.len() > ID_MAX || !id.bytes().all(is_allowed) || id.starts_with('-') {
        return Err(invalid(format!(
            "invalid container id {id:?}: must be 1 to {ID_MAX} characters of A-Z a-z 0-9 . _ -, and not start with -"
        )));
    }
    Ok(())
}

/// Prepares the hooks of the spec, and returns those that this process runs.
fn take_hooks(
    runners: &HookRunners,
    id: &str,
    bundle: String,
    spec: &mut Spec,
    invocation: &mut Invocation,
) -> Result<Option<Box<PendingHooks>>, Failure> {
    let Some(hooks) = &mut spec.hooks else { return Ok(None) };
    if bundle.is_empty() {
        return Err(invalid(format!("create container {id}: its spec has hooks, but the request has no bundle")));
    }
    hooks::set_default_timeouts(hooks);
    let node = runners.node_mounts.as_ref().map(OwnedFd::try_clone).transpose();
    invocation.host_mount_namespace =
        node.map_err(|e| system(format!("create container {id}: duplicate the node's mount namespace"), e))?;
    let pending_hooks = PendingHooks::from_spec(spec, id, &bundle);
    invocation.state = oci::State {
        oci_version: spec.oci_version.clone(),
        id: id.to_owned(),
        bundle,
        annotations: spec.annotations.clone(),
        ..oci::State::default()
    };
    Ok(pending_hooks)
}

/// Returns the attached seccomp program, or compiles the profile of the spec.
fn filter(programs: &mut Programs, spec: &Spec, attached: Option<OwnedFd>) -> Result<Option<Rc<Program>>, Failure> {
    if let Some(file) = attached {
        return programs.read(&file).map(Some);
    }
    let Some(profile) = spec.linux.as_ref().and_then(|linux| linux.seccomp.as_ref()) else { return Ok(None) };
    let program = seccomp::compile(profile).map_err(|e| invalid(e.to_string()))?;
    Ok(Some(programs.share(program)))
}

/// Creates the output of a container from the attached read ends and log.
pub(super) fn output(
    container: &str,
    log: LogOptions,
    attachments: &mut Attachments,
    close_queue: &CloseQueue,
) -> std::io::Result<Output> {
    let directory = attachments.take(Role::LOG_DIRECTORY);
    let limit = log.limit.zip(directory).map(|(limit, directory)| SizeLimit { limit, directory });
    let line_max = limit.as_ref().map_or(BATCH - 1, SizeLimit::line_max).min(BATCH - 1);
    let line_max = (log.line_max as usize).clamp(LINE_MIN, line_max);
    let mut output = Output::new(container, attachments.take(Role::Log), line_max);
    output.limit = limit;
    for (role, kind) in [
        (Role::StdoutRead, StreamKind::Stdout),
        (Role::StderrRead, StreamKind::Stderr),
        (Role::Terminal, StreamKind::Stdout),
    ] {
        if let Some(fd) = attachments.take(role) {
            output.add(kind, fd, close_queue)?;
        }
    }
    output.awaits_log = log.awaited && output.log.is_none();
    Ok(output)
}

fn inputs(attachments: &mut Attachments, seccomp: Option<Program>) -> Option<Inputs> {
    let rootfs = Rootfs::Mount(attachments.take(Role::Rootfs)?);
    let stdio = stdio(attachments);
    let (mut mounts, mut namespaces) = (BTreeMap::new(), BTreeMap::new());
    for (role, fd) in std::mem::take(attachments) {
        match role {
            Role::Mount(index) => drop(mounts.insert(index, fd)),
            Role::Namespace(kind) => drop(namespaces.insert(kind, fd)),
            _ => {}
        }
    }
    Some(Inputs { rootfs, mounts, namespaces, stdio, seccomp, interpreter: None, invocation: Invocation::default() })
}

/// Takes the stdio of a container or an exec.
pub(super) fn stdio(attachments: &mut Attachments) -> Stdio {
    Stdio {
        stdin: attachments.take(Role::Stdin),
        stdout: attachments.take(Role::Stdout),
        stderr: attachments.take(Role::Stderr),
        ..Stdio::default()
    }
}
