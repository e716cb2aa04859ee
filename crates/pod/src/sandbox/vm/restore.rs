//! A virtual machine from a checkpoint: the same devices, which QEMU needs before it loads the state, and new connections.

use std::{fs::File, sync::Arc, time::Duration};

use agent_api::{Network, ProcessId};
use rustix::fd::OwnedFd;
use vm::{
    coupling::{Coupling, couple},
    guest::Guest,
    qemu::{self, Accelerator, Qemu, SavedMemory},
    vmm::Vmm,
};

use super::{
    super::saved_pod::Machine, Boot, BootFailure, attach_couplings, attach_file_server, connect_monitor, end, ended,
    log_directory, make_directory, queues, user, with_logs,
};
use crate::{
    ContainerId, Error,
    container::vm::{SavedPorts, connect_agent, from_guest, from_vmm, limit_monitor, prepare_shared, prepare_sockets},
    error::failed,
    node::Handler,
    operation::{blocking, failpoint, with_undo},
    parts::Parts,
    store::{Container, Sandbox, VmConnection},
};

/// How long QEMU may take to load the state.
const LOAD_TIMEOUT: Duration = Duration::from_secs(600);

/// A virtual machine that is being restored.
pub(in crate::sandbox) struct RestoredMachine<'a> {
    boot: Boot<'a>,
    machine: &'a Machine,
    server: Arc<Container>,
    monitor: Option<Arc<Container>>,
}

impl<'a> RestoredMachine<'a> {
    /// Starts the file server, below which the containers can then be mounted.
    ///
    /// # Errors
    /// `InvalidArgument` if guests are not run here as where the machine was saved, or cannot be as large.
    pub(in crate::sandbox) async fn begin(
        parts: &'a Arc<Parts>,
        sandbox: &'a Arc<Sandbox>,
        machine: &'a Machine,
    ) -> Result<Self, Error> {
        let Handler::Vm(hypervisor) = parts.node.handlers.get(&sandbox.config().runtime_handler)? else {
            return Err(Error::internal("a bug: the handler does not run virtual machines"));
        };
        let (available, bounds) = offload::in_place(|| (hypervisor.accelerator(), hypervisor.bounds()));
        let accelerator = machine.accelerator();
        let is_possible = match accelerator {
            Accelerator::Kvm => available? == Accelerator::Kvm,
            // Whether KVM works is of no interest: its processors differ from emulated ones.
            Accelerator::Tcg => hypervisor.handler.allow_emulation,
        };
        if !is_possible {
            let needed = if machine.kvm { "needs KVM" } else { "was emulated, which the handler does not allow" };
            return Err(Error::invalid(format!("the pod that was saved {needed}")));
        }
        if machine.memory + machine.plugged > bounds.memory + bounds.pluggable || machine.cpus_present > bounds.cpus_max
        {
            return Err(Error::invalid("the pod is larger than memory_max or cpus_max of the handler"));
        }
        let boot = Boot { parts, sandbox, hypervisor, accelerator, migrates: true, saved: Some(machine) };
        let logs = log_directory(parts, sandbox.id());
        let directory = logs.clone();
        blocking(move || make_directory(&directory)).await?;
        let server = boot.create(boot.file_server(&logs)).await?;
        prepare_shared(&server).await?;
        prepare_sockets(&server, 0).await?;
        boot.start(&server).await?;
        failpoint::reach("restore.file_server");
        Ok(Self { boot, machine, server, monitor: None })
    }

    /// Returns the ids of its processes.
    pub(in crate::sandbox) fn processes(&self) -> Vec<ContainerId> {
        let containers = [Some(&self.server), self.monitor.as_ref()];
        containers.into_iter().flatten().map(|container| container.id().clone()).collect()
    }

    /// Starts QEMU, loads the state, and lets the guest run, whose containers are frozen. `exited` are containers that the guest is
    /// to forget.
    pub(in crate::sandbox) async fn load(
        &mut self,
        state: &File,
        ports: SavedPorts,
        exited: &[ContainerId],
    ) -> Result<(), Error> {
        let Boot { parts, sandbox, hypervisor, .. } = self.boot;
        let logs = log_directory(parts, sandbox.id());
        let image = offload::in_place(|| hypervisor.image())?;
        let state = OwnedFd::from(state.try_clone().map_err(failed("duplicate the descriptor of the state"))?);
        let user = user(sandbox);
        let (monitor, _) = self.boot.monitor(&image, &logs, user)?;
        let monitor = self.boot.create(monitor).await?;
        self.monitor = Some(Arc::clone(&monitor));
        prepare_sockets(&monitor, user).await?;
        self.boot.start(&monitor).await?;
        failpoint::reach("restore.hypervisor");
        let connected = tokio::select! {
            connected = self.connect(&monitor, state, ports, exited) => connected,
            () = ended(parts, &self.server) => Err(Error::unavailable("the file server has ended").into()),
            () = ended(parts, &monitor) => Err(Error::unavailable("the virtual machine monitor has ended").into()),
        };
        match connected {
            Ok(connection) => {
                *sandbox.vm.lock().await = Some(Arc::new(connection));
                Ok(())
            }
            Err(BootFailure { error, .. }) => {
                let processes = [("the virtual machine monitor", &monitor), ("the file server", &self.server)];
                let error = with_logs(error, processes).await;
                let ended = end(parts, sandbox).await;
                Err(with_undo(error, ended).during("restore the virtual machine of the pod"))
            }
        }
    }

    async fn connect(
        &self,
        monitor: &Container,
        state: OwnedFd,
        ports: SavedPorts,
        exited: &[ContainerId],
    ) -> Result<VmConnection, BootFailure> {
        let Boot { parts, sandbox, .. } = self.boot;
        let qemu = sandbox.unless_cancelled(connect_monitor(monitor)).await?;
        sandbox.unless_cancelled(attach_file_server(&qemu, &self.server)).await?;
        limit_monitor(parts, sandbox, self.machine.plugged).await?;
        qemu.plug_cpus(self.machine.cpus_present).await.map_err(from_vmm)?;
        let network = self.attach_network(&qemu).await?;
        let unused = ports.plug(&qemu, &self.machine.ports).await?;
        failpoint::reach("restore.plugged");
        let load = async { qemu.load(state, SavedMemory::Inside, LOAD_TIMEOUT).await.map_err(from_vmm) };
        sandbox.unless_cancelled(load).await?;
        failpoint::reach("restore.state");
        let guest = sandbox.unless_cancelled(self.resume(&qemu, network)).await?;
        for container in exited {
            guest.delete(&ProcessId::container(container.as_str())).await.map_err(from_guest)?;
        }
        for port in unused {
            qemu.remove_port(&port).await.map_err(from_vmm)?;
        }
        Ok(VmConnection { qemu, guest })
    }

    /// Lets the guest run, and gives it the time, other random numbers and the network of the pod.
    async fn resume(&self, qemu: &Qemu, network: Network) -> Result<Guest, Error> {
        qemu.resume().await.map_err(from_vmm)?;
        let timeout = self.boot.hypervisor.handler.boot_timeout;
        let guest = connect_agent(self.boot.parts, self.boot.sandbox, qemu, timeout).await?;
        guest.configure(self.boot.configuration(network)?).await.map_err(from_guest)?;
        Ok(guest)
    }

    /// Connects the interfaces of the pod in the order in which they were saved.
    async fn attach_network(&self, qemu: &Qemu) -> Result<Network, Error> {
        let namespace = self.boot.parts.node.pins.get(self.boot.sandbox.id().as_str());
        let namespace = namespace.map_err(failed("open the network namespace of the pod"))?;
        let queues = queues(self.machine.cpus);
        let coupled = blocking(move || couple(&namespace, queues).map_err(from_vmm)).await;
        let (couplings, network) = coupled.map_err(|error| error.during("connect the network of the pod"))?;
        attach_couplings(self.boot.sandbox, qemu, self.in_saved_order(couplings)?).await?;
        Ok(network)
    }

    fn in_saved_order(&self, mut couplings: Vec<Coupling>) -> Result<Vec<Coupling>, Error> {
        let saved = &self.machine.interfaces;
        let position = |coupling: &Coupling| saved.iter().position(|(name, _)| *name == coupling.interface.name);
        if couplings.len() != saved.len() || couplings.iter().any(|coupling| position(coupling).is_none()) {
            let names: Vec<&str> = saved.iter().map(|(name, _)| name.as_str()).collect();
            let message = format!("the pod that was saved has the interfaces {}; it needs the same", names.join(", "));
            return Err(Error::invalid(message));
        }
        couplings.sort_by_key(|coupling| position(coupling));
        Ok(couplings)
    }
}

impl Machine {
    /// Changes a configuration of QEMU to that of the machine that was saved.
    pub(super) fn configure(&self, configuration: &mut qemu::Configuration) {
        configuration.machine = Some(self.kind.clone());
        configuration.incoming = true;
        configuration.memory = self.memory;
        configuration.memory_max = self.memory + self.pluggable;
        (configuration.cpus, configuration.cpus_max) = (self.cpus, self.cpus_max);
    }
}
