//! What containers use: a few reads of descriptors that are open.

use super::{Container, ContainerStats};
use crate::{Error, clock, engine::Inner, error::failed};

pub(crate) fn stats(engine: &Inner, container: &Container) -> Result<ContainerStats, Error> {
    let id = container.id();
    if !container.is_running() {
        return Err(Error::not_found("running container", id));
    }
    let cgroup = container.group(engine)?.stats().map_err(failed(format_args!("measure container {id}")))?;
    let writable_layer = engine.images.snapshot_usage(id);
    Ok(ContainerStats { id: id.to_owned(), at: clock::now(), cgroup, writable_layer })
}
