//! `ReopenContainerLog`: after a rotation the log goes on in a new file of the old name.

use std::sync::Arc;

use super::outside_files;
use crate::{Error, engine::Inner};

pub(crate) async fn reopen_log(engine: &Arc<Inner>, id: &str) -> Result<(), Error> {
    let container = engine.container(id)?;
    if !container.is_running() {
        return Err(Error::state(format!("reopen the log of container {}: it does not run", container.id())));
    }
    match outside_files::open_log(engine, &container).await? {
        Some(log) => engine.monitor.reopen_log(container.id(), log).await,
        None => Ok(()),
    }
}
