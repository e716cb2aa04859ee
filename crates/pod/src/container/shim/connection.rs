//! The connection to the shim of a container.

use std::{sync::Arc, time::Duration};

use shim::Task;

use super::{command::from_shim, shim_of};
use crate::{Error, store::Container};

/// Returns the connection to the shim of a container, and creates it if there is none.
pub(crate) async fn task(container: &Container) -> Result<Arc<Task>, Error> {
    let mut cached = container.shim.task.lock().await;
    if let Some(task) = cached.as_ref().filter(|task| !task.is_closed()) {
        return Ok(Arc::clone(task));
    }
    let task = Arc::new(connect(container).await?);
    *cached = Some(Arc::clone(&task));
    Ok(task)
}

/// Connects to the shim of a container.
pub(super) async fn connect(container: &Container) -> Result<Task, Error> {
    let record = container.record();
    let shim = record.shim.as_ref().ok_or_else(|| Error::state("its shim was not started"))?;
    let timeout = Duration::from_secs(shim_of(container)?.timeout.into());
    Task::connect(&shim.bootstrap, container.id().as_str(), timeout).await.map_err(from_shim)
}
