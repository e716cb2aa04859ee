//! Containers from a checkpoint of their pod: their processes are in the saved virtual machine, so that only what they have on
//! the node is created.

use std::{fs::File, sync::Arc};

use image::Image;

use super::{check::check_against_pod, create_from};
use crate::{
    ContainerConfig, ContainerId, Error,
    error::failed,
    parts::Parts,
    plugins,
    store::{Container, Sandbox},
};

/// A container in a checkpoint.
pub(crate) struct SavedContainer {
    /// Its id in the guest.
    pub(crate) guest_id: ContainerId,
    /// Its writable layer, an archive in the format of image layers.
    pub(crate) layer: File,
}

/// What a container is created from.
#[derive(Clone, Copy)]
pub(super) struct Origin<'a> {
    pub(super) image: &'a Image,
    pub(super) saved: Option<&'a SavedContainer>,
}

impl Origin<'_> {
    /// Returns a descriptor of the saved writable layer, if there is one.
    pub(super) fn layer(&self) -> Result<Option<File>, Error> {
        let layer = self.saved.map(|saved| saved.layer.try_clone()).transpose();
        layer.map_err(failed("duplicate the descriptor of a saved layer"))
    }
}

/// Creates a container from a checkpoint, in a pod that is being restored. The caller holds the gate of the pod.
pub(crate) async fn create_saved(
    parts: &Arc<Parts>,
    sandbox: &Arc<Sandbox>,
    image: &Image,
    config: Arc<ContainerConfig>,
    saved: &SavedContainer,
) -> Result<Arc<Container>, Error> {
    let operation = format!("restore container {}", config.name);
    let origin = Origin { image, saved: Some(saved) };
    let required = plugins::require(parts, sandbox.config(), &config.name).await?;
    check_against_pod(&config.security, sandbox.config())?;
    let created = create_from(parts, sandbox, origin, config, &required).await;
    let id = created.map_err(|failure| failure.error.during(operation))?;
    let container = parts.registry.container(&id)?;
    parts.registry.container_names.assign(container.name(), id);
    parts.add_container_name(sandbox, &container);
    Ok(container)
}
