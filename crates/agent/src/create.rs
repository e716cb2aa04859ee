//! Creates a container: descriptors, plan, clone. What follows is reported by the child (`setup.rs`).

use std::{collections::BTreeMap, path::PathBuf};

use agent_api::{CreateContainer, Failure, FailureKind, ProcessId, Streams};
use container::{Inputs, Invocation, Plan, Rootfs, Stdio};
use rustix::{
    fd::OwnedFd,
    pipe::{PipeFlags, pipe_with},
};

use crate::{
    agent::Agent,
    connection::Caller,
    failure::{invalid, of_container, system},
    ports::Ports,
    process::{Outcome, PendingStreams, Process, Template},
};

/// Group in which the containers of the pod are.
const GROUP: &str = "pod";
/// Maximum number of containers and execs that the agent keeps.
const PROCESSES_MAX: usize = 4096;
/// Limits of the cgroups that a container may create below its own.
const NESTING: cgroup::Nesting = cgroup::Nesting { depth: 32, descendants: 2048 };

/// The ports of a process's streams, open.
#[derive(Default)]
pub(crate) struct OpenPorts {
    stdin: Option<OwnedFd>,
    stdout: Option<OwnedFd>,
    stderr: Option<OwnedFd>,
}

impl OpenPorts {
    /// Opens the ports; `None` if one does not exist yet.
    pub(crate) fn open(ports: &mut Ports, streams: &Streams) -> Option<Self> {
        let mut open = |name: &Option<String>| match name {
            None => Some(None),
            Some(name) => ports.open(name).map(Some),
        };
        Some(Self { stdin: open(&streams.stdin)?, stdout: open(&streams.stdout)?, stderr: open(&streams.stderr)? })
    }

    /// Makes the process's ends of its streams.
    pub(crate) fn connect(self, terminal: bool) -> Outcome<(Stdio, PendingStreams)> {
        let (mut stdio, mut pending) = (Stdio::default(), PendingStreams::default());
        if terminal {
            pending.stdin = self.stdin.map(|port| (port, None));
            pending.stdout = self.stdout.map(|port| (port, None));
            return Ok((stdio, pending));
        }
        if let Some(port) = self.stdin {
            let (read, write) = pipe()?;
            stdio.stdin = Some(read);
            pending.stdin = Some((port, Some(nonblocking(write)?)));
        }
        if let Some(port) = self.stdout {
            let (read, write) = pipe()?;
            stdio.stdout = Some(write);
            pending.stdout = Some((port, Some(nonblocking(read)?)));
        }
        if let Some(port) = self.stderr {
            let (read, write) = pipe()?;
            stdio.stderr = Some(write);
            pending.stderr = Some((port, nonblocking(read)?));
        }
        Ok((stdio, pending))
    }
}

fn pipe() -> Outcome<(OwnedFd, OwnedFd)> {
    pipe_with(PipeFlags::CLOEXEC).map_err(|errno| system("create a pipe", errno))
}

/// Makes this end non-blocking. Each end of a pipe is an open file of its own.
pub(crate) fn nonblocking(end: OwnedFd) -> Outcome<OwnedFd> {
    rustix::io::ioctl_fionbio(&end, true).map_err(|errno| system("make a stream non-blocking", errno))?;
    Ok(end)
}

impl Agent {
    /// Creates a container. Its caller is answered when the container waits for its start.
    pub(crate) fn create(&mut self, caller: Caller, request: CreateContainer, ports: OpenPorts) -> Outcome<()> {
        let CreateContainer { id, mut spec, rootfs, .. } = request;
        let process_id = ProcessId::container(&id);
        self.check_new(&process_id)?;
        if !rootfs.starts_with('/') {
            return Err(invalid(format!("create container {id}: root {rootfs:?} is not an absolute path")));
        }
        spec.linux.get_or_insert_default().cgroups_path = Some(format!("/{GROUP}/{id}"));
        let template = template(&spec)?;
        let terminal = spec.process.as_ref().is_some_and(|process| process.terminal);
        let (stdio, streams) = ports.connect(terminal)?;
        let inputs = Inputs {
            rootfs: Rootfs::Path(PathBuf::from(rootfs)),
            mounts: BTreeMap::new(),
            namespaces: BTreeMap::new(),
            stdio,
            seccomp: template.filter.clone(),
            interpreter: None,
            invocation: Invocation { nesting: Some(NESTING), ..Invocation::default() },
        };
        let failed = |error: container::Error| of_container("create", &process_id, &error);
        let plan = Plan::new(&spec, inputs).map_err(failed)?;
        for warning in plan.warnings() {
            eprintln!("pinion-agent: container {id}: {warning}");
        }
        let mut setup = container::create(&self.trees, plan).map_err(failed)?;
        let cloned = setup.wait_until_cloned();
        let mut process = Process::new(process_id.clone(), setup, streams, caller);
        process.template = template;
        self.processes.insert(process_id.clone(), process);
        if let Err(error) = cloned {
            self.fail(&process_id, failed(error));
        }
        Ok(())
    }

    /// Refuses a process that exists, or one too many.
    pub(crate) fn check_new(&self, id: &ProcessId) -> Outcome<()> {
        if self.processes.contains_key(id) {
            let message = format!("create {}: it exists", crate::failure::name(id));
            return Err(Failure::new(FailureKind::Exists, message));
        }
        match self.processes.len() < PROCESSES_MAX {
            true => Ok(()),
            false => Err(system("create a process", format_args!("the guest has {PROCESSES_MAX} already"))),
        }
    }
}

fn template(spec: &oci::Spec) -> Outcome<Template> {
    let Some(linux) = &spec.linux else { return Ok(Template::default()) };
    let filter = linux.seccomp.as_ref().map(seccomp::compile).transpose();
    Ok(Template {
        filter: filter.map_err(|error| invalid(error.to_string()))?,
        user_namespace: linux.namespaces.iter().any(|namespace| namespace.kind == oci::NamespaceType::User),
        personality: linux.personality.clone(),
        memory_policy: linux.memory_policy.clone(),
    })
}
