//! `ReopenContainerLog`: after a rotation, continues the log in a new file of the old name.

use std::sync::Arc;

use super::prepare::preopened_files;
use crate::{Error, parts::Parts};

pub(crate) async fn reopen_log(parts: &Arc<Parts>, id: &str) -> Result<(), Error> {
    let container = parts.registry.container(id)?;
    if !container.is_running() {
        return Err(Error::state(format!(
            "reopen the log of container {}: the container is not running",
            container.id()
        )));
    }
    match preopened_files::open_log(parts, &container).await? {
        Some(log) => parts.monitor.reopen_log(container.id().as_str(), log).await,
        None => Ok(()),
    }
}
