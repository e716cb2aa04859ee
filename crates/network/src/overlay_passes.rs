//! Passes of the task that keeps the agents of overlays: what waits for an overlay to start or to be gone.

use std::{collections::BTreeSet, time::Duration};

use tokio::{
    sync::{Notify, watch},
    time::timeout,
};

/// Wakes that task when networks have changed, and reports to others what it has done.
#[derive(Debug)]
pub(crate) struct Passes {
    /// Number of passes that are complete, and the names of networks that the node has after the last one.
    done: watch::Sender<(u64, BTreeSet<String>)>,
    changed: Notify,
}

impl Default for Passes {
    fn default() -> Self {
        Self { done: watch::Sender::new((0, BTreeSet::new())), changed: Notify::new() }
    }
}

impl Passes {
    /// Causes a pass soon.
    pub(crate) fn request(&self) {
        self.changed.notify_one();
    }

    /// Waits until a pass is requested, or for an interval.
    pub(crate) async fn requested(&self, interval: Duration) {
        let _ = timeout(interval, self.changed.notified()).await;
    }

    /// Notes that a pass is complete.
    pub(crate) fn complete(&self, networks: BTreeSet<String>) {
        self.done.send_modify(|(number, names)| {
            *number += 1;
            *names = networks;
        });
    }

    /// Waits until the node does not have a network any longer, after a pass that began after this call; returns whether that
    /// was within a time.
    pub(crate) async fn gone(&self, network: &str, limit: Duration) -> bool {
        let mut done = self.done.subscribe();
        // The pass after the present one is the first that begins later.
        let first = done.borrow().0 + 2;
        let wait = async {
            loop {
                self.request();
                let next = done.wait_for(|(number, names)| *number >= first && !names.contains(network));
                if timeout(Duration::from_millis(100), next).await.is_ok() {
                    return;
                }
            }
        };
        timeout(limit, wait).await.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test]
    async fn a_network_is_gone_after_a_pass_that_began_later() {
        let passes = Arc::new(Passes::default());
        assert!(!passes.gone("n", Duration::from_millis(50)).await, "no pass is made");
        let networks = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        let waiting = tokio::spawn({
            let passes = Arc::clone(&passes);
            async move { passes.gone("n", Duration::from_secs(20)).await }
        });
        passes.requested(Duration::from_secs(20)).await;
        passes.complete(networks(&[]));
        passes.requested(Duration::from_secs(20)).await;
        assert!(!waiting.is_finished(), "the first pass may have begun earlier");
        passes.complete(networks(&["n", "m"]));
        passes.requested(Duration::from_secs(20)).await;
        passes.complete(networks(&["m"]));
        assert!(waiting.await.unwrap());
    }
}
