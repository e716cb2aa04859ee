use std::{collections::BTreeMap, rc::Rc};

use cgroup::Nesting;
use container::{Inputs, Invocation, Plan, Rootfs, Stdio};
use monitor_api::{Attachments, Create, Failure, FailureKind, HeldHooks, LogOptions, Role};
use oci::NamespaceType;
use rustix::fd::OwnedFd;

use super::Answer;
use crate::{
    child::{Child, Stage},
    connection::Asked,
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
    terminal::Closing,
    timer::Timer,
};

const ID_MAX: usize = 128;
/// Groups that a container may make below its own (v2), those of its commands among them: enough for an init system or
/// a nested container engine, and a removal of some tenths of a second.
pub(super) const NESTING: Nesting = Nesting { depth: 32, descendants: 2048 };
/// Shortest piece of a line that may be asked for: shorter ones would be more prefix than text.
const LINE_MIN: usize = 64;

impl Monitor {
    /// Clones the container's init; answered when it is set up.
    pub(super) fn create(&mut self, asked: Asked, create: Create, attachments: Attachments) -> Answer {
        let Create { container: id, sandbox, mut spec, log, bundle, mounts } = create;
        let mut attachments = self.with_mounts(&id, attachments);
        self.check_new(&id)?;
        let what = format!("create container {id}");
        let closing = self.terminals.closing.of(&sandbox);
        let output =
            output(log, &mut attachments, &closing).map_err(|e| system(format!("{what}: prepare its output"), e))?;
        let stdin = attachments.take(Role::StdinHold).map(|end| Pipe::new(end, &closing));
        let filter = self.filter(&spec, attachments.take(Role::Seccomp))?;
        let mut inputs = inputs(&mut attachments, filter.as_deref().cloned())
            .ok_or_else(|| invalid(format!("{what}: no Rootfs descriptor is attached")))?;
        // A volume whose mount is missing would be looked for by its path.
        if let Some(sent) = mounts.filter(|sent| *sent != inputs.mounts.len()) {
            let message = format!("{what}: {} of {sent} mounts are here; try again", inputs.mounts.len());
            return Err(Failure::new(FailureKind::State, message));
        }
        let held = self.take_hooks(&id, bundle, &mut spec, &mut inputs.invocation)?;
        let cgroup = spec.linux.as_ref().and_then(|linux| linux.cgroups_path.clone()).unwrap_or_default();
        if let Some(process) = &mut spec.process {
            process.oom_score_adj.get_or_insert(self.inherit.oom_score_adj);
            self.inherit.restore_files(process);
        }
        inputs.invocation.nesting = Some(NESTING);
        let user_namespace =
            spec.has_namespace(NamespaceType::User) || inputs.namespaces.contains_key(&NamespaceType::User);
        let hooks_time = hooks::time_inside(&spec);
        let plan = Plan::new(&spec, inputs).map_err(|e| of_container(&what, &e))?;
        if plan.mounts_file_systems_of_host() {
            // That would wait for their disks, here.
            return Err(invalid(format!("{what}: mounts of the host's directories or devices must be attached")));
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
            hooks: held,
            pod_init: false,
            user_namespace,
            hooks_time,
            adopted: false,
            stage: Stage::Changing,
            warnings: plan.warnings().to_vec(),
            deletes: Vec::new(),
            removing: false,
        };
        self.clone_child(asked, child, plan)?;
        Ok(None)
    }

    /// Whether this id can be given to a new object.
    pub(super) fn check_new(&self, id: &str) -> Result<(), Failure> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if id.is_empty() || id.len() > ID_MAX || !id.bytes().all(allowed) {
            return Err(invalid(format!("container id {id:?}: must be 1 to {ID_MAX} of A-Z a-z 0-9 . _ -")));
        }
        if self.find(id).is_some() {
            return Err(Failure::new(FailureKind::AlreadyExists, format!("container {id} exists already")));
        }
        Ok(())
    }

    /// What its hooks need; those that are still to be run.
    fn take_hooks(
        &self,
        id: &str,
        bundle: String,
        spec: &mut oci::Spec,
        invocation: &mut Invocation,
    ) -> Result<Option<Box<HeldHooks>>, Failure> {
        let Some(hooks) = &mut spec.hooks else { return Ok(None) };
        if bundle.is_empty() {
            return Err(invalid(format!("create container {id}: its spec has hooks, and no bundle is named for them")));
        }
        hooks::bound(hooks);
        let node = self.node_mounts.as_ref().map(OwnedFd::try_clone).transpose();
        invocation.host_mounts =
            node.map_err(|e| system(format!("create container {id}: duplicate a namespace"), e))?;
        let held = HeldHooks::of(spec, id, &bundle);
        invocation.state = oci::State {
            oci_version: spec.oci_version.clone(),
            id: id.to_owned(),
            bundle,
            annotations: spec.annotations.clone(),
            ..oci::State::default()
        };
        Ok(held)
    }

    /// The attached program, or the spec's profile compiled.
    fn filter(&mut self, spec: &oci::Spec, attached: Option<OwnedFd>) -> Result<Option<Rc<seccomp::Program>>, Failure> {
        if let Some(file) = attached {
            return self.programs.read(&file).map(Some);
        }
        let Some(profile) = spec.linux.as_ref().and_then(|linux| linux.seccomp.as_ref()) else { return Ok(None) };
        let program = seccomp::compile(profile).map_err(|e| invalid(e.to_string()))?;
        Ok(Some(self.programs.share(program)))
    }

    /// Makes the cgroup and clones; what the child sends is waited for in the loop.
    pub(super) fn clone_child(&mut self, asked: Asked, mut child: Child, plan: Plan) -> Result<(), Failure> {
        let what = format!("create container {}", child.id);
        let nascent = container::create(&self.trees, plan);
        self.terminals.cloned();
        let nascent = nascent.map_err(|e| of_container(&what, &e))?;
        child.pid = nascent.pid;
        child.start_time = start_time(nascent.pid).unwrap_or(0);
        let serial = self.next_serial();
        self.timers.after(SETUP_DEADLINE + child.hooks_time, Timer::SetUp(serial));
        child.stage = Stage::Setting(nascent, asked);
        self.containers.insert(serial, child);
        self.watch(serial);
        Ok(())
    }
}

/// The monitor's ends of the container's output, and its log.
pub(super) fn output(log: LogOptions, attachments: &mut Attachments, closing: &Closing) -> std::io::Result<Output> {
    let line_max = (log.line_max as usize).clamp(LINE_MIN, BATCH - 1);
    let mut output = Output::new(attachments.take(Role::Log), line_max);
    for (role, kind) in [
        (Role::StdoutRead, StreamKind::Stdout),
        (Role::StderrRead, StreamKind::Stderr),
        (Role::Terminal, StreamKind::Stdout),
    ] {
        if let Some(fd) = attachments.take(role) {
            output.add(kind, fd, closing)?;
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

/// The container's or command's ends.
pub(super) fn stdio(attachments: &mut Attachments) -> Stdio {
    Stdio {
        stdin: attachments.take(Role::Stdin),
        stdout: attachments.take(Role::Stdout),
        stderr: attachments.take(Role::Stderr),
        ..Stdio::default()
    }
}
