//! Announces to NRI plugins that a container stopped, once, whatever the reason.

use std::sync::Arc;

use super::plugin_changes;
use crate::{
    parts::Parts,
    plugins,
    store::{Container, ContainerPhase},
};

/// Announces that a container stopped, unless that was done; a concurrent call waits until it is done. Has no effect on
/// a container that is running.
pub(crate) async fn announce_stop(parts: &Arc<Parts>, container: &Arc<Container>) {
    if parts.plugins.is_none() || container.record().phase != ContainerPhase::Exited {
        return;
    }
    container.stop_announced.get_or_init(|| announce(parts, container)).await;
}

async fn announce(parts: &Arc<Parts>, container: &Arc<Container>) {
    let Some(round) = plugins::round(parts) else { return };
    let (pod, message) = plugins::messages_of(parts, container).await;
    let changes = round.stop_container(pod.as_ref(), message).await;
    if let Err(error) = plugin_changes::apply(parts, changes).await {
        tracing::warn!(container = container.id().as_str(), %error, "what NRI plugins requested at a stop failed");
    }
}
