//! `CHECK` of the network plugins: on request, and for the pods of an earlier daemon. A problem is reported, and the pod
//! stays as it is: a check says nothing about its containers, and plugins are known that report problems without cause.

use std::sync::{Arc, Weak};

use futures_util::{StreamExt, stream};

use crate::{SharedMode, parts::Parts, store::Sandbox};

/// Number of pods that are checked at the same time: a check runs programs, and nothing waits for it.
const CONCURRENT_CHECKS: usize = 1;

/// Runs the check of a pod and adds the calls of plugins to its timeline. Succeeds for a pod in the node's network.
pub(crate) async fn check(parts: &Parts, sandbox: &Sandbox) -> Result<(), network::Error> {
    if sandbox.config().network == SharedMode::Node || !sandbox.is_ready() {
        return Ok(());
    }
    let checked = parts.node.network.check(sandbox.id().as_str()).await;
    sandbox.add_plugin_calls(&parts.node.network);
    checked.inspect_err(|error| {
        let name = &sandbox.config().name;
        let (name, namespace) = (&name.name, &name.namespace);
        tracing::warn!(sandbox = %sandbox.id(), name, namespace, %error, "a network plugin reports a problem of a pod");
    })
}

/// Checks all pods that are ready, in the background.
pub(crate) async fn check_recovered(parts: Weak<Parts>) {
    let Some(sandboxes) = parts.upgrade().map(|parts| parts.registry.sandboxes()) else { return };
    let ready: Vec<Arc<Sandbox>> = sandboxes.into_iter().filter(|sandbox| sandbox.is_ready()).collect();
    let check_one = |sandbox: Arc<Sandbox>| {
        let parts = parts.clone();
        async move {
            if let Some(parts) = parts.upgrade() {
                // It was logged.
                let _ = check(&parts, &sandbox).await;
            }
        }
    };
    stream::iter(ready).for_each_concurrent(CONCURRENT_CHECKS, check_one).await;
}
