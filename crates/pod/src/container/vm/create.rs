//! Creates a container in the virtual machine of its pod.

use std::sync::Arc;

use agent_api::CreateContainer;
use monitor_api::{Attachments, Create, Role};
use rustix::fd::OwnedFd;

use super::{
    connection, from_guest, guest_spec,
    mounts::attach,
    ports::{PortPipes, remove_ports},
    size::{Change, grow},
    watch,
};
use crate::{
    Error,
    container::spec::capabilities,
    monitor::{CreateOutcome, CreatedProcess},
    operation::failpoint,
    parts::Parts,
    store::{Container, Sandbox},
};

/// Creates a container in the virtual machine of its pod. If it fails, the caller removes what was created.
pub(crate) async fn create(
    parts: &Arc<Parts>,
    sandbox: &Sandbox,
    container: &Arc<Container>,
    create: Create,
    (send, keep): (Attachments, Attachments),
) -> Result<CreateOutcome, Error> {
    let (mounts, streams) = split(send);
    if container.is_restored() {
        return create_restored(parts, sandbox, container, create, (mounts, streams, keep)).await;
    }
    // Its limits are on record: other changes may follow.
    drop(grow(parts, sandbox, Change::None).await?);
    failpoint::reach("vm.grown");
    let connection = connection(parts, sandbox).await?;
    let granted = capabilities(container.config(), &parts.node.config.defaults)?;
    let seccomp = parts.node.filters.profile(&container.config().security, &granted)?;
    let spec = guest_spec::guest_spec(container, &create.spec, seccomp, &mounts)?;
    attach(parts, sandbox, container.guest_id(), mounts).await?;
    failpoint::reach("vm.mounted");
    // The cgroup on the node stays empty: the limits apply in the guest.
    parts.monitor.create(Create { external: true, ..create }, streams, keep).await?;
    failpoint::reach("vm.output");
    let pipes = PortPipes::of_container(&parts.registry.records.directory(container.id()), container.config())?;
    let streams = pipes.add(&connection.qemu, container.id().as_str()).await?;
    failpoint::reach("vm.ports");
    let rootfs = format!("{}/rootfs", guest_spec::bundle(container));
    let request = CreateContainer { id: container.id().to_string(), spec, rootfs, streams };
    if let Err(error) = connection.guest.create(request).await {
        remove_ports(&connection.qemu, container.id().as_str()).await;
        return Err(from_guest(error));
    }
    failpoint::reach("vm.created");
    watch(parts, container);
    Ok(CreateOutcome::Created(CreatedProcess { pid: 0, start_time: 0, warnings: Vec::new() }))
}

/// Creates what a container that is restored from a checkpoint has on the node. Its guest has the container, and is not running.
async fn create_restored(
    parts: &Arc<Parts>,
    sandbox: &Sandbox,
    container: &Container,
    create: Create,
    (mounts, streams, keep): (Vec<(Role, OwnedFd)>, Attachments, Attachments),
) -> Result<CreateOutcome, Error> {
    // Refuses what a guest does not have.
    guest_spec::guest_spec(container, &create.spec, None, &mounts)?;
    attach(parts, sandbox, container.guest_id(), mounts).await?;
    parts.monitor.create(Create { external: true, ..create }, streams, keep).await?;
    failpoint::reach("restore.container");
    Ok(CreateOutcome::Created(CreatedProcess { pid: 0, start_time: 0, warnings: Vec::new() }))
}

/// Separates the mounts of the container from what the monitor gets.
fn split(send: Attachments) -> (Vec<(Role, OwnedFd)>, Attachments) {
    let (mut mounts, mut streams) = (Vec::new(), Attachments::new());
    for (role, file) in send {
        match role {
            Role::Rootfs | Role::Mount(_) => mounts.push((role, file)),
            Role::Seccomp | Role::Namespace(_) => drop(file),
            role => streams.push(role, file),
        }
    }
    (mounts, streams)
}
