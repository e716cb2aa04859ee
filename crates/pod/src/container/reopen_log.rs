//! `ReopenContainerLog`: after a rotation, continues the log in a new file of the old name.

use std::sync::Arc;

use super::preopened_files;
use crate::{Error, engine::Inner};

pub(crate) async fn reopen_log(engine: &Arc<Inner>, id: &str) -> Result<(), Error> {
    let container = engine.container(id)?;
    if !container.is_running() {
        return Err(Error::state(format!(
            "reopen the log of container {}: the container is not running",
            container.id()
        )));
    }
    match preopened_files::open_log(engine, &container).await? {
        Some(log) => engine.monitor.reopen_log(container.id(), log).await,
        None => Ok(()),
    }
}
