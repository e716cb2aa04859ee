//! `ReopenContainerLog`: after a rotation the log goes on in a new file of the old name.

use std::sync::Arc;

use super::stdio;
use crate::{Error, engine::Inner};

pub(crate) async fn reopen_log(engine: &Arc<Inner>, id: &str) -> Result<(), Error> {
    let container = engine.container(id)?;
    if !container.is_running() {
        return Err(Error::state(format!("reopen the log of container {}: it does not run", container.id())));
    }
    let Some(path) = &container.metadata.log_path else { return Ok(()) };
    engine.monitor.reopen_log(container.id(), stdio::open_log(path)?).await
}
