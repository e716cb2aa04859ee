use std::{collections::BTreeMap, rc::Rc};

use cgroup::Nesting;
use container::{Inputs, Invocation, Plan, Rootfs, Stdio};
use monitor_api::{Attachments, Create, Failure, FailureKind, LogOptions, PendingHooks, Role};
use oci::NamespaceType;
use rustix::fd::OwnedFd;

use super::Answer;
use crate::{
    child::{Child, Stage},
    connection::RequestId,
    failure::{invalid, of_container, system},
    hooks,
    log::journal::BATCH,
    monitor::Monitor,
    output::Output,
    pipe::Pipe,
    process::start_time,
    programs::Filter,
    setup::SETUP_DEADLINE,
    stream::StreamKind,
    terminal::CloseQueue,
    timer::Timer,
};

const ID_MAX: usize = 128;
/// Limits of the cgroups that a container may create below its own (v2), including those of its execs. They are enough
/// for an init system or a nested container engine, and removing them takes some tenths of a second.
pub(super) const NESTING: Nesting = Nesting { depth: 32, descendants: 2048 };
/// Shortest piece of a line. In shorter ones the prefix would be longer than the content.
const LINE_MIN: usize = 64;

impl Monitor {
    /// Clones the init of a container. Answered when it is set up.
    pub(super) fn create(&mut self, request_id: RequestId, create: Create, attachments: Attachments) -> Answer {
        let Create { container: id, sandbox, mut spec, log, bundle, mounts } = create;
        let mut attachments = self.with_mounts(&id, attachments);
        self.check_new(&id)?;
        let operation = format!("create container {id}");
        let close_queue = self.terminals.close_queue.for_pod(&sandbox);
        let output = output(log, &mut attachments, &close_queue)
            .map_err(|e| system(format!("{operation}: prepare output"), e))?;
        let stdin = attachments.take(Role::StdinHold).map(|end| Pipe::new(end, &close_queue));
        let filter = self.filter(&spec, attachments.take(Role::Seccomp))?;
        let mut inputs = inputs(&mut attachments, filter.as_deref().cloned())
            .ok_or_else(|| invalid(format!("{operation}: no Rootfs descriptor is attached")))?;
        // A volume without its mount would be mounted by its path.
        if let Some(sent) = mounts.filter(|sent| *sent != inputs.mounts.len()) {
            let message = format!("{operation}: {} of {sent} mounts received; try again", inputs.mounts.len());
            return Err(Failure::new(FailureKind::State, message));
        }
        let pending_hooks = self.take_hooks(&id, bundle, &mut spec, &mut inputs.invocation)?;
        let cgroup = spec.linux.as_ref().and_then(|linux| linux.cgroups_path.clone()).unwrap_or_default();
        if let Some(process) = &mut spec.process {
            process.oom_score_adj.get_or_insert(self.inherited_limits.oom_score_adj);
            self.inherited_limits.restore_open_files(process);
        }
        inputs.invocation.nesting = Some(NESTING);
        let user_namespace =
            spec.has_namespace(NamespaceType::User) || inputs.namespaces.contains_key(&NamespaceType::User);
        let hooks_time = hooks::container_hooks_time(&spec);
        let plan = Plan::new(&spec, inputs).map_err(|e| of_container(&operation, &e))?;
        if plan.mounts_host_file_systems() {
            // Mounting them here would wait for their disks.
            return Err(invalid(format!(
                "{operation}: mounts of directories or devices of the host must be attached as descriptors"
            )));
        }
        let child = Child {
            id,
            sandbox,
            cgroup,
            pid: 0,
            start_time: 0,
            pidfd: None,
            group: None,
            log,
            output,
            stdin,
            filter: Filter::Known(filter),
            hooks: pending_hooks,
            pod_init: false,
            user_namespace,
            hooks_time,
            adopted: false,
            stage: Stage::Changing,
            warnings: plan.warnings().to_vec(),
            deletes: Vec::new(),
            removing: false,
        };
        self.clone_child(request_id, child, plan)?;
        Ok(None)
    }

    /// Checks that this id is valid and not in use.
    pub(super) fn check_new(&self, id: &str) -> Result<(), Failure> {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if id.is_empty() || id.len() > ID_MAX || !id.bytes().all(is_allowed) {
            return Err(invalid(format!(
                "invalid container id {id:?}: must be 1 to {ID_MAX} characters of A-Z a-z 0-9 . _ -"
            )));
        }
        if self.find(id).is_some() {
            return Err(Failure::new(FailureKind::AlreadyExists, format!("container {id} already exists")));
        }
        Ok(())
    }

    /// Prepares the hooks of the spec, and returns those that this process runs.
    fn take_hooks(
        &self,
        id: &str,
        bundle: String,
        spec: &mut oci::Spec,
        invocation: &mut Invocation,
    ) -> Result<Option<Box<PendingHooks>>, Failure> {
        let Some(hooks) = &mut spec.hooks else { return Ok(None) };
        if bundle.is_empty() {
            return Err(invalid(format!("create container {id}: its spec has hooks, but the request has no bundle")));
        }
        hooks::set_default_timeouts(hooks);
        let node = self.node_mounts.as_ref().map(OwnedFd::try_clone).transpose();
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
    fn filter(&mut self, spec: &oci::Spec, attached: Option<OwnedFd>) -> Result<Option<Rc<seccomp::Program>>, Failure> {
        if let Some(file) = attached {
            return self.programs.read(&file).map(Some);
        }
        let Some(profile) = spec.linux.as_ref().and_then(|linux| linux.seccomp.as_ref()) else { return Ok(None) };
        let program = seccomp::compile(profile).map_err(|e| invalid(e.to_string()))?;
        Ok(Some(self.programs.share(program)))
    }

    /// Creates the cgroup and clones the child. Its messages are handled by the event loop.
    pub(super) fn clone_child(&mut self, request_id: RequestId, mut child: Child, plan: Plan) -> Result<(), Failure> {
        let operation = format!("create container {}", child.id);
        let setup = container::create(&self.trees, plan);
        self.terminals.cloned();
        let setup = setup.map_err(|e| of_container(&operation, &e))?;
        child.pid = setup.pid.as_raw_pid();
        child.start_time = start_time(child.pid).unwrap_or(0);
        let serial = self.next_serial();
        self.timers.after(SETUP_DEADLINE + child.hooks_time, Timer::SetUp(serial));
        child.stage = Stage::SettingUp(setup, request_id);
        self.containers.insert(serial, child);
        self.watch(serial);
        Ok(())
    }
}

/// Creates the output of a container from the attached read ends and log.
pub(super) fn output(
    log: LogOptions,
    attachments: &mut Attachments,
    close_queue: &CloseQueue,
) -> std::io::Result<Output> {
    let line_max = (log.line_max as usize).clamp(LINE_MIN, BATCH - 1);
    let mut output = Output::new(attachments.take(Role::Log), line_max);
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

fn inputs(attachments: &mut Attachments, seccomp: Option<seccomp::Program>) -> Option<Inputs> {
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
    Some(Inputs { rootfs, mounts, namespaces, stdio, seccomp, invocation: Invocation::default() })
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
