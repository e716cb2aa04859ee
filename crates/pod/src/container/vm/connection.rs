//! The connections to the virtual machine of a pod.

use std::{sync::Arc, time::Duration};

use tokio::net::UnixStream;
use vm::{
    guest::Guest,
    qemu::{Qemu, SOCKET},
    vmm::{Status, Vmm},
};

use super::{from_guest, from_vmm, process::find_process, sockets::SocketDirectory};
use crate::{
    Error, ErrorKind, VmProcess,
    error::failed,
    parts::Parts,
    store::{Sandbox, VmConnection, identifier},
};

/// Time limit of a command of the virtual machine monitor.
pub(super) const VMM_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the agent in a running guest may take to answer on a new connection.
const AGENT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long all of it may take, including the wait for others who connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
/// Length of the random part of the name of a connection.
pub(super) const NAME_LENGTH: usize = 16;

/// Returns the connections to the virtual machine of a pod, and creates them if they are closed.
///
/// # Errors
/// `DeadlineExceeded` after [`CONNECT_TIMEOUT`], whatever the virtual machine monitor answers and others wait for.
pub(crate) async fn connection(parts: &Parts, sandbox: &Sandbox) -> Result<Arc<VmConnection>, Error> {
    let connected = tokio::time::timeout(CONNECT_TIMEOUT, connect(parts, sandbox)).await;
    connected.unwrap_or_else(|_| {
        let cause = "the virtual machine monitor or the agent in the guest does not answer";
        let message = format!("connect to the virtual machine of pod {}: {cause}", sandbox.id());
        Err(Error::new(ErrorKind::DeadlineExceeded, message))
    })
}

async fn connect(parts: &Parts, sandbox: &Sandbox) -> Result<Arc<VmConnection>, Error> {
    let mut held = sandbox.vm.lock().await;
    if let Some(connection) = held.as_ref().filter(|connection| !connection.is_closed()) {
        return Ok(Arc::clone(connection));
    }
    // The virtual machine monitor serves one client at a time, and others may still use this one.
    if let Some(broken) = held.take() {
        broken.close();
    }
    let hypervisor = find_process(parts, sandbox.id(), VmProcess::Hypervisor);
    let hypervisor = hypervisor.ok_or_else(|| Error::unavailable("the pod has no virtual machine monitor"))?;
    let sockets = SocketDirectory::open(&hypervisor).await?;
    let qemu = Qemu::connect(&sockets.path(SOCKET), VMM_TIMEOUT).await.map_err(from_vmm)?;
    // The agent of a guest that does not run is not waited for.
    match qemu.status().await.map_err(from_vmm)? {
        Status::Failed(fault) => return Err(Error::unavailable(format!("the virtual machine has failed: {fault}"))),
        Status::Paused => return Err(Error::unavailable("the virtual machine is paused")),
        Status::Created | Status::Running | Status::Stopped => {}
    }
    // Those of an earlier daemon. Its other ports are removed by the next check (`health`).
    for port in qemu.ports().into_iter().filter(|port| port.starts_with(agent_api::CONNECTION_PREFIX)) {
        qemu.remove_port(&port).await.map_err(from_vmm)?;
    }
    let guest = connect_agent(parts, sandbox, &qemu, AGENT_TIMEOUT).await?;
    let connection = Arc::new(VmConnection { qemu, guest });
    *held = Some(Arc::clone(&connection));
    Ok(connection)
}

/// Connects to the agent in a guest, which may take `boot` to answer.
pub(crate) async fn connect_agent(
    parts: &Parts,
    sandbox: &Sandbox,
    qemu: &Qemu,
    boot: Duration,
) -> Result<Guest, Error> {
    let timeout = match parts.node.handlers.get(&sandbox.config().runtime_handler) {
        Ok(crate::node::Handler::Vm(hypervisor)) => hypervisor.handler.timeout,
        // It is not configured anymore; its pods are stopped and removed all the same.
        _ => AGENT_TIMEOUT,
    };
    let (near, far) = UnixStream::pair().map_err(failed("create a socket pair"))?;
    let far = far.into_std().map_err(failed("use a socket"))?;
    let name = format!("{}{}", agent_api::CONNECTION_PREFIX, &identifier::generate()?[..NAME_LENGTH]);
    qemu.add_connection(&name, far.into()).await.map_err(from_vmm)?;
    Guest::connect(near, boot, timeout).await.map_err(from_guest)
}
