//! `UpdateContainerResources` with the plugins that may change it.

use std::sync::Arc;

use nri::{Changes, Event};

use super::{plugin_changes, update};
use crate::{Error, parts::Parts, plugins};

/// Changes the limits of a container to those that the caller requests and NRI plugins permit.
pub(crate) async fn request_update(
    parts: &Arc<Parts>,
    id: &str,
    mut resources: oci::Resources,
    oom_score_adj: Option<i32>,
) -> Result<(), Error> {
    let container = parts.registry.container(id)?;
    let with_context = |e: Error| e.during(format_args!("update container {}", container.id()));
    // Before the container is locked: a plugin may request updates of it in the meantime.
    let mut changes = Changes::default();
    if let Some(round) = plugins::round(parts) {
        let (pod, message) = plugins::messages_of(parts, &container).await;
        let requested = plugins::resources::to_message(&resources);
        let answer = round.update_container(pod.as_ref(), message, requested).await;
        let (adjusted, others) = answer.map_err(|e| with_context(e.into()))?;
        plugin_changes::refuse_classes(&adjusted).map_err(with_context)?;
        plugins::resources::set(&adjusted, &mut resources);
        changes = others;
    }
    plugin_changes::apply(parts, changes).await.map_err(with_context)?;
    let busy = Arc::clone(&container.busy).lock_owned().await;
    update::update_locked(parts, &container, resources, oom_score_adj, busy).await?;
    plugins::container_event(parts, Event::PostUpdateContainer, &container).await;
    Ok(())
}
