//! Kills commands in containers.

use std::sync::Arc;

use cgroup::Group;

use super::shim_command;
use crate::{
    Error,
    container::{driver::Driver, vm},
    error::failed,
    monitor::orphans,
    operation::blocking,
    parts::Parts,
    store::Container,
};

/// Kills an exec'd process with all its descendants. Returns false if it does not exist, or all are gone. The execs of
/// a dead monitor are found by their cgroups.
pub(super) async fn kill(parts: &Arc<Parts>, container: &Arc<Container>, id: &str) -> Result<bool, Error> {
    match Driver::of(container) {
        Driver::Monitor => {}
        Driver::Shim => return shim_command::kill(container, id).await,
        Driver::Vm => return vm::kill_exec(parts, container, id).await,
    }
    if parts.monitor.kill_exec(id).await? {
        return Ok(true);
    }
    let killed = with_group(parts, container, id, |group| {
        group.kill()?;
        group.remove()
    });
    killed.await.map(|()| false)
}

/// Calls `action` with the cgroup of an exec'd process, if it exists.
pub(super) async fn with_group(
    parts: &Arc<Parts>,
    container: &Arc<Container>,
    id: &str,
    action: impl FnOnce(Group) -> Result<(), cgroup::Error> + Send + 'static,
) -> Result<(), Error> {
    let (parts, container, id) = (Arc::clone(parts), Arc::clone(container), id.to_owned());
    blocking(move || {
        // If the container's cgroup does not exist, neither does that of the process.
        let Ok(container_group) = container.group(&parts.node.trees) else { return Ok(()) };
        let outcome = match container_group.open_exec_group(&id) {
            Err(cgroup::Error::Missing { .. }) => Ok(()),
            opened => opened.and_then(action),
        };
        outcome.map_err(failed(format_args!("kill an exec'd process in container {}", container.id())))
    })
    .await
}

/// Kills a command whose start failed. A monitor that died before it answered may have started the command, and nothing
/// else would kill it. If the monitor refused the command, there is nothing to kill.
pub(super) fn kill_unanswered(parts: &Arc<Parts>, container: &Arc<Container>, id: String, monitor_died: bool) {
    let (parts, container) = (Arc::clone(parts), Arc::clone(container));
    offload::spawn(async move {
        if let Err(error) = kill(&parts, &container, &id).await {
            tracing::warn!(container = container.id().as_str(), "kill a command whose start was not answered: {error}");
        }
        if monitor_died {
            orphans::reap_soon().await;
        }
    });
}
