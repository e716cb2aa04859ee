//! `ReopenContainerLog`: after a rotation the log goes on in a new file of the old name.

use std::sync::Arc;

use super::log_file;
use crate::{
    Error,
    engine::{Inner, blocking},
};

pub(crate) async fn reopen_log(engine: &Arc<Inner>, id: &str) -> Result<(), Error> {
    let container = engine.container(id)?;
    if !container.is_running() {
        return Err(Error::state(format!("reopen the log of container {}: it does not run", container.id())));
    }
    let of = Arc::clone(&container);
    match blocking(move || log_file::open_log(&of.metadata)).await? {
        Some(log) => engine.monitor.reopen_log(container.id(), log).await,
        None => Ok(()),
    }
}
