//! Containers of an OCI runtime: its command, the bundle, and the state that it leaves behind.
//!
//! The monitor runs the commands (`pinmon/src/oci_runtime.rs`). The bundle is in the state directory of the container,
//! and the volumes and the root in it are mounted only in the mount namespace in which `create` runs.

mod base_spec;
mod bundle;
mod specification;

use std::{io, path::Path};

use monitor_api::OciRuntime;

use crate::{
    Error, OciHandler,
    error::failed,
    operation::blocking,
    parts::Parts,
    store::{Container, ContainerRuntime},
};

pub(crate) use bundle::write_bundle;
pub(crate) use specification::BundleInputs;

/// Where an OCI runtime finds programs that it executes.
const PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Returns the OCI runtime of a new container with this state directory.
pub(crate) fn runtime_of(handler: &OciHandler, state_dir: &Path, container: &Path) -> Result<ContainerRuntime, Error> {
    let root = handler.root.clone().unwrap_or_else(|| state_dir.join("runtime").join(&handler.name));
    let text = |path: &Path| {
        let message = || Error::invalid(format!("runtime handler {}: {path:?} is not valid UTF-8", handler.name));
        path.to_str().map(str::to_owned).ok_or_else(message)
    };
    let mut arguments = vec![text(&handler.binary)?, "--root".to_owned(), text(&root)?];
    arguments.extend(handler.arguments.iter().cloned());
    let environment = std::iter::once(PATH.to_owned()).chain(handler.environment.iter().cloned()).collect();
    Ok(ContainerRuntime {
        handler: handler.name.clone(),
        command: OciRuntime {
            arguments,
            environment,
            bundle: text(&container.join("bundle"))?,
            timeout: u32::try_from(handler.timeout.as_secs()).unwrap_or(u32::MAX),
        },
        root,
        allowed_annotations: handler.allowed_annotations.clone(),
        default_annotations: handler.default_annotations.clone(),
    })
}

/// Removes the state of a container that its runtime has not deleted, because a process was killed in the meantime.
/// Does nothing for a container without a runtime.
pub(crate) async fn remove_leftover_state(parts: &Parts, container: &Container) -> Result<(), Error> {
    let Some(runtime) = &container.metadata.runtime else { return Ok(()) };
    // Where runc, crun and youki keep the state of a container.
    let state = runtime.root.join(container.id().as_str());
    if !offload::in_place(|| state.exists()) {
        return Ok(());
    }
    let deleted = parts.monitor.runtime_delete(container.id().as_str(), &runtime.command).await;
    // The state of an interrupted `create` may be incomplete, so that the runtime cannot delete it.
    let removed = blocking(move || match std::fs::remove_dir_all(&state) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(failed(format_args!("remove {}", state.display()))(error))
        }
        _ => Ok(()),
    });
    match (removed.await, deleted) {
        (Ok(()), Err(error)) => {
            tracing::warn!(container = container.id().as_str(), "{error}");
            Ok(())
        }
        (removed, _) => removed,
    }
}
