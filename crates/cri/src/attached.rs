//! Which containers have attached clients of the command line: what these have not read yet goes with the container, so
//! its removal waits for them.

use std::collections::HashMap;

use tokio::sync::watch;

use crate::answer::Shared;

/// How many clients each container has; none: not in the map.
#[derive(Debug, Default)]
pub(crate) struct Attached(watch::Sender<HashMap<String, usize>>);

/// One client, until it is dropped.
pub(crate) struct AttachedClient {
    state: Shared,
    container: String,
}

impl Attached {
    /// Counts a client.
    pub(crate) fn enter(state: &Shared, container: &str) -> AttachedClient {
        state.attached.0.send_modify(|clients| *clients.entry(container.to_owned()).or_default() += 1);
        AttachedClient { state: state.clone(), container: container.to_owned() }
    }

    /// Resolves when the container has no client.
    pub(crate) async fn none(&self, container: &str) {
        // The sender is this one: it is not dropped while somebody waits.
        let _ = self.0.subscribe().wait_for(|clients| !clients.contains_key(container)).await;
    }
}

impl Drop for AttachedClient {
    fn drop(&mut self) {
        self.state.attached.0.send_modify(|clients| {
            if let Some(count) = clients.get_mut(&self.container) {
                *count -= 1;
                if *count == 0 {
                    clients.remove(&self.container);
                }
            }
        });
    }
}
