//! Requests to the shim of a container.

use std::sync::Arc;

use monitor_api::{KillScope, Target};
use rustix::process::Signal;

use super::{command::from_shim, connection::task};
use crate::{Error, ErrorKind, parts::Parts, store::Container};

/// Starts a created container. Succeeds for one that is running.
pub(crate) async fn start(parts: &Parts, container: &Arc<Container>) -> Result<(), Error> {
    let task = task(container).await?;
    if let Err(error) = task.start("").await {
        // It must not run later: the request fails.
        let killed = task.kill("", Signal::KILL.as_raw(), true).await;
        killed.unwrap_or_else(|error| tracing::debug!(container = container.id().as_str(), "{error}"));
        return Err(from_shim(error));
    }
    parts.monitor.start(container.id().as_str(), || std::future::ready(true)).await
}

/// Sends a signal. Succeeds for a container that is gone. SIGKILL to all is also sent to its processes on the node, which
/// a shim that hangs cannot prevent.
pub(crate) async fn kill(
    parts: &Parts,
    container: &Arc<Container>,
    signal: i32,
    scope: KillScope,
) -> Result<(), Error> {
    let is_final = signal == Signal::KILL.as_raw() && scope == KillScope::All;
    if is_final {
        let target = Target::Container(container.id().to_string());
        parts.monitor.kill(&target, signal, scope).await?;
    }
    let request = async { task(container).await?.kill("", signal, scope == KillScope::All).await.map_err(from_shim) };
    match request.await {
        Err(error) if matches!(error.kind, ErrorKind::NotFound | ErrorKind::FailedPrecondition) => Ok(()),
        // Its end is waited for in any case.
        Err(error) if is_final => {
            tracing::warn!(container = container.id().as_str(), "{error}");
            Ok(())
        }
        outcome => outcome,
    }
}

/// Closes the end of standard input of a container, or of a process in it, that the shim keeps open.
pub(crate) async fn close_stdin(container: &Container, exec: &str) -> Result<(), Error> {
    task(container).await?.close_stdin(exec).await.map_err(from_shim)
}

/// Changes the size of the terminal of a container, or of a process in it.
pub(crate) async fn resize(container: &Container, exec: &str, size: oci::TerminalSize) -> Result<(), Error> {
    task(container).await?.resize(exec, size.width, size.height).await.map_err(from_shim)
}

/// Changes the limits of a container.
pub(crate) async fn update(container: &Container, resources: &oci::Resources) -> Result<(), Error> {
    let resources = serde_json::to_vec(resources).map_err(crate::error::failed("encode resources"))?;
    task(container).await?.update(resources).await.map_err(from_shim)
}
