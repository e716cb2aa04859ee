//! Sends a signal to a container on request.

use std::sync::Arc;

use monitor_api::KillScope;

use super::driver;
use crate::{Error, parts::Parts};

pub(crate) async fn kill(parts: &Arc<Parts>, id: &str, signal: i32, all: bool) -> Result<(), Error> {
    let container = parts.registry.container(id)?;
    if !(1..=64).contains(&signal) {
        return Err(Error::invalid(format!("signal {signal} is not between 1 and 64")));
    }
    if !container.is_running() {
        return Err(Error::state(format!(
            "send signal {signal} to container {}: the container is not running",
            container.id()
        )));
    }
    container.signal_requested(signal);
    let scope = if all { KillScope::All } else { KillScope::Init };
    driver::signal(parts, &container, signal, scope).await
}
