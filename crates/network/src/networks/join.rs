//! Overlays that a pod requests: joined if only other nodes have them, and ready before the pod is attached.

use std::{sync::Arc, time::Duration};

use overlay::Record;
use tokio::time::{Instant, sleep};

use super::create_overlay;
use crate::{Driver, Error, NetworkChoice, NetworkDefinition, named::OverlayStore, network::Inner};

/// Longest time that a new overlay is waited for: its agent has to claim a subnet in etcd.
const READY_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval at which it is looked for.
const INTERVAL: Duration = Duration::from_millis(20);

impl Inner {
    /// Joins the overlays among a pod's networks that this node does not have, and waits until it has a subnet of each. If it
    /// does not get one in time, attaching fails with the reason.
    pub(crate) async fn prepare_overlays(self: &Arc<Self>, choices: &[NetworkChoice]) -> Result<(), Error> {
        let Some(store) = &self.overlay_store else { return Ok(()) };
        for choice in choices {
            // A name of another node counts more than the beginning of an id of this one.
            let named = self.named.list().into_iter().find(|definition| definition.name == choice.network);
            let definition = match named {
                Some(definition) => definition,
                None => match create_overlay::join(self, &choice.network).await {
                    Ok(definition) => Arc::new(definition),
                    // It is an id, or a pod that was started at the same time was faster.
                    Err(error) => self.named.get(&choice.network).map_err(|_| error)?,
                },
            };
            if definition.driver == Driver::Overlay {
                wait_until_ready(store, &definition).await;
            }
        }
        Ok(())
    }
}

async fn wait_until_ready(store: &OverlayStore, definition: &NetworkDefinition) {
    let (deadline, name) = (Instant::now() + READY_TIMEOUT, definition.list_name());
    while !offload::in_place(|| Record::exists(&store.state_directory, &name)) && Instant::now() < deadline {
        sleep(INTERVAL).await;
    }
}
