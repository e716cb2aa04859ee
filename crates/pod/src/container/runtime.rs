//! Containers of an OCI runtime: its command, the bundle, and the state that it leaves behind.
//!
//! The monitor runs the commands (`pinmon/src/oci_runtime.rs`). The bundle is in the state directory of the container,
//! and the volumes and the root in it are mounted only in the mount namespace in which `create` runs.

mod base_spec;
mod bundle;
mod interrupted_start;
mod leftover_command;
mod message;
mod privileges;
mod specification;

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use monitor_api::OciRuntime;

use crate::{
    Error, ErrorKind, OciHandler,
    error::failed,
    node::PATH,
    operation::blocking,
    parts::Parts,
    store::{Container, ContainerRuntime},
};

pub(crate) use bundle::{LOG, write_bundle, write_shim_bundle};
pub(crate) use interrupted_start::has_started;
pub(crate) use message::add_message;
pub(crate) use privileges::limit_to_own;
pub(crate) use specification::BundleInputs;

/// How long a runtime that outlived its monitor may take to start a container.
pub(crate) const START_PATIENCE: Duration = Duration::from_secs(10);
/// How often a runtime is executed to delete a container if the monitor dies each time.
const DELETE_TRIES: u32 = 3;

/// Returns the OCI runtime of a new container with this state directory.
pub(crate) fn runtime_of(handler: &OciHandler, state_dir: &Path, container: &Path) -> Result<ContainerRuntime, Error> {
    let root = handler.root(state_dir);
    let text = |path: &Path| {
        let message = || Error::invalid(format!("runtime handler {}: {path:?} is not valid UTF-8", handler.name));
        path.to_str().map(str::to_owned).ok_or_else(message)
    };
    let mut arguments = vec![text(&handler.binary)?, "--root".to_owned(), text(&root)?];
    arguments.extend(handler.arguments.iter().cloned());
    let environment = std::iter::once(format!("PATH={PATH}")).chain(handler.environment.iter().cloned()).collect();
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

/// Has the runtime delete a container; again if the monitor dies in the meantime.
async fn delete_repeatedly(parts: &Parts, id: &str, runtime: &ContainerRuntime) -> Result<(), Error> {
    let mut tries = 1;
    loop {
        match parts.monitor.runtime_delete(id, &runtime.command).await {
            Err(error) if error.kind == ErrorKind::Unavailable && tries < DELETE_TRIES => tries += 1,
            outcome => return outcome,
        }
        end_command_of(runtime, Duration::ZERO).await?;
    }
}

/// Waits until no command of its runtime runs for a container, after its monitor has died. Kills the command after
/// `patience`. Does nothing for a container without a runtime.
pub(crate) async fn end_command(container: &Container, patience: Duration) -> Result<(), Error> {
    match &container.metadata.runtime {
        Some(runtime) => end_command_of(runtime, patience).await,
        None => Ok(()),
    }
}

async fn end_command_of(runtime: &ContainerRuntime, patience: Duration) -> Result<(), Error> {
    let bundle = PathBuf::from(&runtime.command.bundle);
    blocking(move || {
        leftover_command::end(&bundle, patience);
        Ok(())
    })
    .await
}

/// Removes the state of a container that its runtime has not deleted, because a process was killed in the meantime.
/// Does nothing for a container without a runtime.
pub(crate) async fn remove_leftover_state(parts: &Parts, container: &Container) -> Result<(), Error> {
    let Some(runtime) = &container.metadata.runtime else { return Ok(()) };
    // A command that outlived its monitor must not create state after this.
    end_command(container, Duration::ZERO).await?;
    // Where runc, crun and youki keep the state of a container.
    let state = runtime.root.join(container.id().as_str());
    if !offload::in_place(|| state.exists()) {
        return Ok(());
    }
    let deleted = delete_repeatedly(parts, container.id().as_str(), runtime).await;
    if let Err(error) = &deleted
        && error.kind == ErrorKind::Unavailable
    {
        // Without its state the runtime could not remove what else belongs to the container.
        return deleted;
    }
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
