//! The virtual machine of a pod: two sandbox containers, which the monitor keeps like all others, and their connection.
//!
//! ```text
//! FileServer   virtiofsd; root with the capabilities that files need; serves the tmpfs /shared
//! Hypervisor   QEMU; no capabilities, a user of its own; gets all but its sockets as descriptors
//! ```
//! Both have the mount namespace, the cgroup below that of the pod, the seccomp filter and the log of a container. When
//! either of them ends, the pod is stopped.
//!
//! ```text
//! processes   the two as containers
//! template    a guest that begins from the saved state of one that has booted
//! restore     a guest that continues from a checkpoint of a pod
//! ```

mod processes;
mod restore;
mod template;

use std::{fs, os::unix::fs::DirBuilderExt, path::Path, sync::Arc, time::Duration};

use agent_api::{Configuration, Network};
use rustix::fd::OwnedFd;
use vm::{
    coupling::{Coupling, couple},
    guest::Guest,
    qemu::{self, Accelerator, Qemu},
    vmm::{Tap, Vmm},
};

use super::saved_pod::Machine;
use crate::{
    ContainerConfig, ContainerId, Error, ErrorKind, VmProcess,
    container::{
        create::sandbox_container,
        exit,
        remove::remove,
        start,
        vm::{
            FILE_SERVER_SOCKET, SocketDirectory, check_health, connect_agent, find_process, from_guest, from_vmm,
            log_directory, prepare_shared, prepare_sockets,
        },
    },
    error::failed,
    namespaces::hostname,
    node::{Handler, Hypervisor},
    operation::{Undo, blocking, failpoint, with_undo},
    parts::Parts,
    stdio::log_tail,
    store::{Container, SIGKILLED, Sandbox, VmConnection},
};
pub(super) use restore::RestoredMachine;
use template::Origin;

/// Names of the logs.
const HYPERVISOR_LOG: &str = "hypervisor.log";
const FILE_SERVER_LOG: &str = "file-server.log";
/// Where the image of the guest is in the container of the virtual machine monitor.
const IMAGE: &str = "/run/image";
/// The first of the user ids of virtual machine monitors.
const FIRST_USER: u32 = 0x7000_0000;
/// How long a program may take to make its socket.
const SOCKET_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a guest that KVM runs may take to boot where it could be emulated, too.
const KVM_BOOT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the exit of a process may be reported after its sockets are closed.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);
/// Pause until a socket is connected to again.
const PAUSE: Duration = Duration::from_millis(5);
/// Most queues of an interface. Linux's driver in the guest uses at most one for each of its processors.
const QUEUES_MAX: usize = 8;
/// Number of bytes for the random number generator of a guest.
const ENTROPY: usize = 64;
/// Most bytes of the console in an error.
const CONSOLE_MAX: usize = 1024;

/// Boots the virtual machine of a pod whose handler is one. Returns its processes: the pod is to be stopped when one of them
/// ends. Everything is undone if it fails.
pub(super) async fn boot(parts: &Arc<Parts>, sandbox: &Arc<Sandbox>) -> Result<Vec<ContainerId>, Error> {
    let Handler::Vm(hypervisor) = parts.node.handlers.get(&sandbox.config().runtime_handler)? else {
        return Ok(Vec::new());
    };
    sandbox.stage("boot its virtual machine");
    let migrates = hypervisor.file_server_migrates().await;
    loop {
        let accelerator = offload::in_place(|| hypervisor.accelerator())?;
        let boot = Boot { parts, sandbox, hypervisor, accelerator, migrates, saved: None };
        let failure = match boot.run().await {
            Ok(processes) => {
                check_health(parts, sandbox);
                return Ok(processes);
            }
            Err(failure) => failure,
        };
        let error = with_undo(failure.error, end(parts, sandbox).await);
        if failure.is_templates && !sandbox.is_cancelled() {
            hypervisor.give_up_templates();
            if let Err(error) = offload::in_place(|| hypervisor.templates.remove()) {
                tracing::warn!("{error}");
            }
            tracing::warn!(
                "a guest does not continue from its template; guests boot until the daemon is restarted: {error}"
            );
            continue;
        }
        let is_kvms = failure.is_guests && accelerator == Accelerator::Kvm && !sandbox.is_cancelled();
        let error = match is_kvms.then(|| offload::in_place(|| hypervisor.give_up_kvm(&error.message))) {
            Some(Ok(true)) => {
                tracing::warn!("guests do not boot with KVM; they are emulated from now on: {error}");
                continue;
            }
            Some(Err(unrecorded)) => with_undo(error, Err(unrecorded)),
            Some(Ok(false)) | None => error,
        };
        return Err(error.during("boot the virtual machine of the pod"));
    }
}

/// Ends the processes of the virtual machine of a pod. Idempotent.
pub(super) async fn end(parts: &Arc<Parts>, sandbox: &Arc<Sandbox>) -> Result<(), Error> {
    let mut undo = Undo::default();
    for process in [VmProcess::Hypervisor, VmProcess::FileServer] {
        while let Some(container) = find_process(parts, sandbox.id(), process) {
            let removed = remove(parts, container.id()).await;
            let is_removed = removed.is_ok();
            undo.step("end a process of the virtual machine", async { removed }).await;
            if !is_removed {
                break;
            }
        }
    }
    // A holder of the lock waits for the virtual machine monitor, which has ended.
    if let Some(connection) = sandbox.vm.lock().await.take() {
        connection.close();
    }
    undo.finish()
}

/// Why a virtual machine was not booted.
struct BootFailure {
    error: Error,
    /// Whether the guest did not run: the virtual machine monitor ended, or the agent did not introduce itself.
    is_guests: bool,
    /// Whether the guest did not continue from a template.
    is_templates: bool,
}

impl From<Error> for BootFailure {
    fn from(error: Error) -> Self {
        Self { error, is_guests: false, is_templates: false }
    }
}

impl BootFailure {
    fn of_guest(error: Error) -> Self {
        Self { error, is_guests: true, is_templates: false }
    }
}

/// A virtual machine that is being booted.
struct Boot<'a> {
    parts: &'a Arc<Parts>,
    sandbox: &'a Arc<Sandbox>,
    hypervisor: &'a Hypervisor,
    accelerator: Accelerator,
    /// Whether the file server can hand its state over.
    migrates: bool,
    /// What it is restored from.
    saved: Option<&'a Machine>,
}

impl Boot<'_> {
    async fn run(&self) -> Result<Vec<ContainerId>, BootFailure> {
        let (parts, sandbox) = (self.parts, self.sandbox);
        let user = user(sandbox);
        let logs = log_directory(parts, sandbox.id());
        let image = {
            let logs = logs.clone();
            blocking(move || make_directory(&logs)).await?;
            offload::in_place(|| self.hypervisor.image())?
        };
        let server = self.create(self.file_server(&logs)).await?;
        prepare_shared(&server).await?;
        prepare_sockets(&server, 0).await?;
        self.start(&server).await?;
        failpoint::reach("vm.file_server");
        sandbox.check_cancelled()?;
        let (monitor, origin) = self.monitor(&image, &logs, user)?;
        let uses_template = !matches!(origin, Origin::Boot);
        let is_missing = || origin.template().is_some_and(|template| !template.directory.exists());
        let started = self.start_monitor(monitor, user).await;
        let monitor = started.map_err(|error| BootFailure { is_templates: is_missing(), ..error.into() })?;
        failpoint::reach("vm.hypervisor");
        let connection = tokio::select! {
            connected = self.connect(&server, &monitor, origin) => connected,
            () = ended(parts, &server) => Err(Error::unavailable("the file server has ended").into()),
            () = ended(parts, &monitor) => {
                let error = Error::unavailable("the virtual machine monitor has ended");
                Err(BootFailure::of_guest(error))
            }
        };
        let connection = match connection {
            Ok(connection) => connection,
            Err(failure) if sandbox.is_cancelled() => return Err(failure),
            Err(BootFailure { error, is_guests, .. }) => {
                // One that was killed says nothing about KVM or the template: the cgroup of the pod may be too small.
                let is_guests = is_guests && !was_killed(parts, [&server, &monitor]).await;
                let error =
                    with_logs(error, [("the virtual machine monitor", &monitor), ("the file server", &server)]).await;
                let is_templates = uses_template && is_guests;
                return Err(BootFailure { error, is_guests, is_templates });
            }
        };
        failpoint::reach("vm.booted");
        *sandbox.vm.lock().await = Some(Arc::new(connection));
        Ok([server, monitor].iter().map(|container| container.id().clone()).collect())
    }

    async fn create(&self, config: ContainerConfig) -> Result<Arc<Container>, Error> {
        let id: ContainerId = sandbox_container::create_with(self.parts, self.sandbox, config).await?;
        self.parts.registry.container(&id)
    }

    /// Starts the virtual machine monitor.
    async fn start_monitor(&self, config: ContainerConfig, user: u32) -> Result<Arc<Container>, Error> {
        let monitor = self.create(config).await?;
        prepare_sockets(&monitor, user).await?;
        self.start(&monitor).await?;
        Ok(monitor)
    }

    async fn start(&self, container: &Container) -> Result<(), Error> {
        start::start(self.parts, container.id().as_str()).await
    }

    /// Connects the devices of the virtual machine, lets it run, and waits for the agent; not any longer when the pod is
    /// stopped.
    async fn connect(
        &self,
        server: &Container,
        monitor: &Container,
        origin: Origin,
    ) -> Result<VmConnection, BootFailure> {
        let sandbox = self.sandbox;
        let qemu = sandbox.unless_cancelled(connect_monitor(monitor)).await?;
        let from_template = origin.template().is_some();
        sandbox.unless_cancelled(self.prepare(&qemu, monitor, origin)).await?;
        sandbox.unless_cancelled(attach_file_server(&qemu, server)).await?;
        let network = self.attach_network(&qemu).await?;
        let guest = sandbox.unless_cancelled(async {
            let guest = self.run_guest(&qemu).await?;
            let configured = guest.configure(self.configuration(network)?).await.map_err(from_guest);
            configured.map_err(|error| {
                // It has to find its devices, which were plugged into a template.
                let is_guests = from_template && is_silence(&error);
                BootFailure { is_guests, ..error.into() }
            })?;
            Ok::<_, BootFailure>(guest)
        });
        Ok(VmConnection { guest: guest.await?, qemu })
    }

    /// Lets the guest run, and connects to its agent.
    async fn run_guest(&self, qemu: &Qemu) -> Result<Guest, BootFailure> {
        let timeout = match (self.accelerator, self.hypervisor.handler.allow_emulation) {
            (Accelerator::Kvm, true) if !self.hypervisor.kvm_works() => {
                KVM_BOOT_TIMEOUT.min(self.hypervisor.handler.boot_timeout)
            }
            _ => self.hypervisor.handler.boot_timeout,
        };
        qemu.resume().await.map_err(from_vmm)?;
        let guest = connect_agent(self.parts, self.sandbox, qemu, timeout).await.map_err(|error| {
            // Another answer than none is not the fault of KVM.
            let is_guests = is_silence(&error);
            BootFailure { is_guests, ..error.into() }
        })?;
        if self.accelerator == Accelerator::Kvm {
            self.hypervisor.note_kvm_works();
        }
        Ok(guest)
    }

    /// Gives the virtual machine the interfaces of the pod. Returns the network of the guest.
    async fn attach_network(&self, qemu: &Qemu) -> Result<Network, Error> {
        let namespace = self.parts.node.pins.get(self.sandbox.id().as_str());
        let namespace = namespace.map_err(failed("open the network namespace of the pod"))?;
        let queues = queues(self.hypervisor.handler.cpus);
        let coupled = blocking(move || couple(&namespace, queues).map_err(from_vmm)).await;
        let (couplings, network) = coupled.map_err(|error| error.during("connect the network of the pod"))?;
        attach_couplings(self.sandbox, qemu, couplings).await?;
        Ok(network)
    }

    fn configuration(&self, network: Network) -> Result<Configuration, Error> {
        let mut entropy = vec![0; ENTROPY];
        rustix::rand::getrandom(&mut entropy[..], rustix::rand::GetRandomFlags::empty())
            .map_err(failed("read random bytes"))?;
        Ok(Configuration {
            hostname: Some(hostname(self.sandbox.config())),
            time: Some(crate::clock::now()),
            time_tolerance: 0,
            entropy,
            network: Some(network),
            sysctls: self.sandbox.config().sysctls.clone(),
            mount_shared: true,
        })
    }
}

/// Returns the number of queues of an interface: one for each processor that the guest boots with.
fn queues(cpus: u32) -> usize {
    usize::try_from(cpus).map_or(QUEUES_MAX, |cpus| cpus.min(QUEUES_MAX))
}

/// Gives a virtual machine network interfaces.
async fn attach_couplings(sandbox: &Sandbox, qemu: &Qemu, couplings: Vec<Coupling>) -> Result<(), Error> {
    for (index, coupling) in (0..).zip(couplings) {
        let mtu = u16::try_from(coupling.interface.mtu).unwrap_or(u16::MAX);
        let tap = Tap { id: coupling.tap, index, queues: coupling.queues, mac: coupling.interface.mac, mtu };
        sandbox.unless_cancelled(async { qemu.attach_tap(tap).await.map_err(from_vmm) }).await?;
    }
    Ok(())
}

/// Returns the user id of the virtual machine monitor of a pod.
fn user(sandbox: &Sandbox) -> u32 {
    let digits = sandbox.id().as_str().get(..6).unwrap_or_default();
    FIRST_USER + u32::from_str_radix(digits, 16).unwrap_or(0)
}

/// Creates the directory of the logs, which the processes of the virtual machine do not see. Logs of an earlier boot are removed:
/// they would be in the error of this one.
fn make_directory(directory: &Path) -> Result<(), Error> {
    use std::io::ErrorKind::{AlreadyExists, NotFound};
    match fs::DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != AlreadyExists => {
            return Err(failed(format_args!("create {}", directory.display()))(error));
        }
        _ => {}
    }
    for path in [HYPERVISOR_LOG, FILE_SERVER_LOG].map(|name| directory.join(name)) {
        match fs::remove_file(&path) {
            Err(error) if error.kind() != NotFound => {
                return Err(failed(format_args!("remove {}", path.display()))(error));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Whether an error means that a guest does not answer, or not with its devices.
fn is_silence(error: &Error) -> bool {
    matches!(error.kind, ErrorKind::DeadlineExceeded | ErrorKind::Unavailable)
}

/// Whether the kernel or somebody killed a process of a virtual machine that fails. Its exit may be reported after its sockets are
/// closed.
async fn was_killed(parts: &Parts, processes: [&Arc<Container>; 2]) -> bool {
    let [first, second] = processes;
    let exit = async {
        tokio::select! {
            () = ended(parts, first) => {}
            () = ended(parts, second) => {}
        }
    };
    let _ = tokio::time::timeout(EXIT_TIMEOUT, exit).await;
    processes.iter().any(|process| process.status().exit_code == Some(SIGKILLED))
}

/// Connects to the virtual machine monitor.
async fn connect_monitor(monitor: &Container) -> Result<Qemu, BootFailure> {
    let sockets = SocketDirectory::open(monitor).await.map_err(BootFailure::of_guest)?;
    Ok(Qemu::connect_to_started(&sockets.path(qemu::SOCKET), SOCKET_TIMEOUT).await.map_err(from_vmm)?)
}

/// Has the virtual machine monitor connect to the file server.
async fn attach_file_server(qemu: &Qemu, server: &Container) -> Result<(), BootFailure> {
    let sockets = SocketDirectory::open(server).await?;
    let server = connect_when_ready(&sockets.path(FILE_SERVER_SOCKET)).await?;
    Ok(qemu.attach_file_server(agent_api::SHARED_TAG, server).await.map_err(from_vmm)?)
}

/// Connects to the socket of a program that is being started.
async fn connect_when_ready(socket: &Path) -> Result<OwnedFd, Error> {
    let operation = format!("connect to {}", socket.display());
    let connect = async {
        loop {
            match vm::qmp::connect_socket(socket).await {
                Ok(stream) => return stream.into_std().map(OwnedFd::from).map_err(failed(&operation)),
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    };
    let timed_out = |_| Error::new(ErrorKind::DeadlineExceeded, format!("{operation}: nothing listens there"));
    tokio::time::timeout(SOCKET_TIMEOUT, connect).await.map_err(timed_out)?
}

/// Waits until a process of the virtual machine has exited.
async fn ended(parts: &Parts, container: &Container) {
    let _ = exit::wait(parts, container.id()).await;
}

/// Adds the last lines of the logs of the processes to an error: that of the virtual machine monitor has the console.
async fn with_logs(error: Error, containers: [(&str, &Arc<Container>); 2]) -> Error {
    let mut error = error;
    for (name, container) in containers {
        let container = Arc::clone(container);
        let text = blocking(move || log_tail(&container.metadata, CONSOLE_MAX)).await.unwrap_or_default();
        if !text.is_empty() {
            error.message = format!("{}; last output of {name}: {text}", error.message);
        }
    }
    error
}
