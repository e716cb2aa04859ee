//! Requests to the guest of a container.

use std::{sync::Arc, time::Duration};

use agent_api::ProcessId;
use monitor_api::KillScope;
use rustix::process::Signal;

use super::{
    connection, from_guest,
    guest_spec::guest_resources,
    size::SizeLock,
    size::{Change, grow, shrink},
};
use crate::{
    Error, ErrorKind,
    parts::Parts,
    store::{Container, Sandbox, VmConnection},
};

/// How long a guest may take to deliver a signal: a stop must not wait for one that hangs.
const SIGNAL_TIMEOUT: Duration = Duration::from_secs(10);

/// Returns the connections to the virtual machine of a container.
pub(crate) async fn connection_of(parts: &Parts, container: &Container) -> Result<Arc<VmConnection>, Error> {
    let sandbox = parts.registry.sandbox(&container.metadata.sandbox)?;
    connection(parts, &sandbox).await
}

/// Starts a created container, or thaws one that was restored from a checkpoint. Succeeds for one that is running.
pub(crate) async fn start(parts: &Parts, container: &Arc<Container>) -> Result<(), Error> {
    let connection = connection_of(parts, container).await?;
    let (id, guest_id) = (container.id().as_str(), container.guest_id().as_str());
    let started = match container.record().frozen {
        true => connection.guest.freeze(guest_id, false).await,
        false => connection.guest.start(guest_id).await,
    };
    if let Err(error) = started {
        // It must not run later: the request fails.
        let killed = connection.guest.signal(&ProcessId::container(guest_id), Signal::KILL.as_raw(), true).await;
        killed.unwrap_or_else(|error| tracing::debug!(container = id, "{error}"));
        return Err(from_guest(error));
    }
    parts.monitor.start(id, || std::future::ready(true)).await
}

/// Sends a signal. Succeeds for a container that is gone.
pub(crate) async fn kill(
    parts: &Parts,
    container: &Arc<Container>,
    signal: i32,
    scope: KillScope,
) -> Result<(), Error> {
    let id = ProcessId::container(container.guest_id().as_str());
    let is_final = signal == Signal::KILL.as_raw() && scope == KillScope::All;
    // A checkpoint may take longer than a guest to answer; the stop of the pod aborts it.
    let sandbox = parts.registry.sandbox(&container.metadata.sandbox)?;
    let _running = sandbox.pause.read().await;
    let request = async {
        let connection = connection(parts, &sandbox).await?;
        connection.guest.signal(&id, signal, scope == KillScope::All).await.map_err(from_guest)
    };
    let late = || Error::new(ErrorKind::DeadlineExceeded, "signal a container: its guest does not answer");
    match tokio::time::timeout(SIGNAL_TIMEOUT, request).await.unwrap_or_else(|_| Err(late())) {
        Err(error) if matches!(error.kind, ErrorKind::NotFound | ErrorKind::FailedPrecondition) => Ok(()),
        // Its end is waited for in any case.
        Err(error) if is_final => {
            tracing::warn!(container = container.id().as_str(), "{error}");
            Ok(())
        }
        outcome => outcome,
    }
}

/// Kills a process that was executed in a container, with all its descendants. Returns false if it is gone.
pub(crate) async fn kill_exec(parts: &Parts, container: &Container, exec: &str) -> Result<bool, Error> {
    let sandbox = parts.registry.sandbox(&container.metadata.sandbox)?;
    sandbox.guest_execs.kill(exec);
    let connection = connection(parts, &sandbox).await?;
    let id = ProcessId::exec(container.guest_id().as_str(), exec);
    match connection.guest.signal(&id, Signal::KILL.as_raw(), true).await.map_err(from_guest) {
        Ok(()) => Ok(true),
        Err(error) if matches!(error.kind, ErrorKind::NotFound | ErrorKind::FailedPrecondition) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Changes the size of the terminal of a container, or of a process in it.
pub(crate) async fn resize(
    parts: &Parts,
    container: &Container,
    exec: Option<&str>,
    size: oci::TerminalSize,
) -> Result<(), Error> {
    let id = ProcessId { container: container.guest_id().to_string(), exec: exec.map(str::to_owned) };
    connection_of(parts, container).await?.guest.resize(&id, size).await.map_err(from_guest)
}

/// Changes the limits of a container: in the guest when that has what they allow. The caller calls [`settle`] when they are on record,
/// or [`revert`] if they cannot be.
pub(crate) async fn update(
    parts: &Arc<Parts>,
    container: &Arc<Container>,
    resources: &oci::Resources,
) -> Result<SizeLock, Error> {
    let sandbox = parts.registry.sandbox(&container.metadata.sandbox)?;
    let change = Change::Container(container.id(), resources);
    let size = grow(parts, &sandbox, change).await?;
    match set_limits(parts, &sandbox, container, resources).await {
        Ok(()) => Ok(size),
        Err(error) => {
            shrink(parts, &sandbox, size).await;
            Err(error)
        }
    }
}

/// Has the guest give back what the limits on record do not allow to use.
pub(crate) async fn settle(parts: &Parts, container: &Container, size: SizeLock) {
    if let Ok(sandbox) = parts.registry.sandbox(&container.metadata.sandbox) {
        shrink(parts, &sandbox, size).await;
    }
}

/// Gives a container its limits on record again.
pub(crate) async fn revert(parts: &Parts, container: &Container, recorded: &oci::Resources, size: SizeLock) {
    let Ok(sandbox) = parts.registry.sandbox(&container.metadata.sandbox) else { return };
    if let Err(error) = set_limits(parts, &sandbox, container, recorded).await {
        tracing::warn!(container = container.id().as_str(), "change its limits back: {error}");
    }
    shrink(parts, &sandbox, size).await;
}

/// Sets the limits of a container in its guest; not any longer when its pod is stopped.
async fn set_limits(
    parts: &Parts,
    sandbox: &Sandbox,
    container: &Container,
    resources: &oci::Resources,
) -> Result<(), Error> {
    let work = async {
        let connection = connection(parts, sandbox).await?;
        let resources = guest_resources(resources.clone());
        connection.guest.update(container.guest_id().as_str(), resources).await.map_err(from_guest)
    };
    sandbox.unless_stopped(work).await
}
