//! Containers of a containerd shim: started by the monitor, controlled by requests to it.
//!
//! ```text
//! create   mounts in the namespace of the pod's shims, `start` of the shim, Create        ─▶ the shim's pid and address on record
//! watch    Wait, over a connection of its own; again after a restart of the daemon
//!   exited: status on record, Delete (all output is in the FIFOs then), Shutdown if it is the last one, unmount ─▶ monitor: End
//!   died:   the shim is killed, `delete` of the shim, cgroup killed by the monitor, unmount                    ─▶ monitor: End
//! ```
//! The monitor keeps output and cgroup, and reports the exit like that of any other container. A shim may hang, die or
//! lie: each request has a deadline, a pid counts only if the kernel agrees, and whatever fails ends with "died".

mod command;
mod connection;
mod create;
mod end;
mod events;
mod leftover_exec;
mod log;
mod namespace;
mod requests;
mod resume;
mod watch;

use std::path::Path;

use crate::{
    ContainerId, Error, ShimHandler,
    node::{PATH, find_shim},
    store::{Container, ContainerShim},
};

pub(crate) use command::from_shim;
pub(crate) use connection::task;
pub(crate) use create::create;
pub(crate) use end::{give_up, remove};
pub(crate) use events::{handle as handle_events, listen};
pub(crate) use leftover_exec::exec_path;
pub(crate) use namespace::{kill_pod, kill_unowned};
pub(crate) use requests::{close_stdin, kill, resize, start, update};
pub(crate) use resume::resume;

/// Name of the socket in the state directory that receives the events of shims.
const EVENTS: &str = "shim-events";

/// Returns the shim of a container that a shim drives.
fn shim_of(container: &Container) -> Result<&ContainerShim, Error> {
    container.metadata.shim.as_ref().ok_or_else(|| Error::internal("a bug: the container has no shim"))
}

/// Returns the shim of a new container with this state directory.
pub(crate) fn shim_for(
    handler: &ShimHandler,
    state_dir: &Path,
    id: &ContainerId,
    container: &Path,
    sandbox_container: Option<ContainerId>,
) -> Result<ContainerShim, Error> {
    let text = |path: &Path| {
        let message = || Error::invalid(format!("runtime handler {}: {path:?} is not valid UTF-8", handler.name));
        path.to_str().map(str::to_owned).ok_or_else(message)
    };
    let unusable = |cause: String| Error::state(format!("runtime handler {:?}: {cause}", handler.name));
    let mut options = handler.options.clone();
    if let Some(shim::Options::Runc { root, .. }) = &mut options
        && root.is_empty()
    {
        *root = text(&state_dir.join("runtime").join(&handler.name))?;
    }
    let environment = std::iter::once(format!("PATH={PATH}")).chain(handler.environment.iter().cloned()).collect();
    Ok(ContainerShim {
        handler: handler.name.clone(),
        binary: text(&find_shim(handler).map_err(unusable)?)?,
        environment,
        options,
        bundle: text(&container.join("bundle").join(id.as_str()))?,
        events: text(&state_dir.join(EVENTS))?,
        timeout: u32::try_from(handler.timeout.as_secs()).unwrap_or(u32::MAX),
        allowed_annotations: handler.allowed_annotations.clone(),
        sandbox_container,
    })
}
