//! The layers of an image, all of which are fetched at the same time.

use std::{sync::Arc, time::Duration};

use futures_util::future::try_join_all;
use tracing::{Instrument, debug_span};

use super::{LayerEntry, layer::Source};
use crate::{
    Digest, Error,
    index::LayerRef,
    progress::Listeners,
    single_flight::{CancelToken, Waiter},
    store::Inner,
    transfers::ReadyLayer,
};

/// Layers that an image waits for, lowest first.
struct LayerWaiters {
    all: Vec<(Digest, Waiter<ReadyLayer>)>,
    /// Whether one of them was started by another pull.
    shared: bool,
}

impl Inner {
    /// Fetches and unpacks all layers that are missing, at the same time, and returns all layers, lowest first. None of
    /// them is visible before [`Inner::list_image`]. After a failure only operations that other pulls wait for are
    /// still running.
    pub(crate) async fn ensure_layers(
        self: &Arc<Self>,
        layers: &[LayerRef],
        source: &Source,
        listeners: &Listeners,
        cancel: &CancelToken,
    ) -> Result<Vec<LayerEntry>, Error> {
        let (registry, repository) = source.scopes();
        let waiters = self.start_layers(layers, (source, registry), listeners);
        let shared = waiters.shared;
        match waiters.wait(cancel).await {
            // The other pull's repository may be the cause: its permissions, or its blobs.
            Err(_) if shared && !cancel.is_cancelled() => {
                self.start_layers(layers, (source, repository), listeners).wait(cancel).await
            }
            result => result,
        }
    }

    fn start_layers(
        self: &Arc<Self>,
        layers: &[LayerRef],
        (source, scope): (&Source, String),
        listeners: &Listeners,
    ) -> LayerWaiters {
        let mut waiters = LayerWaiters { all: Vec::with_capacity(layers.len()), shared: false };
        let mut claims = Digest::of(b"");
        for layer in layers {
            claims = Digest::of(format!("{claims} {} {} {}", layer.chain, layer.blob, layer.size).as_bytes());
            let (store, source, lower_waiters) = (self.clone(), source.clone(), waiters.all.clone());
            let layer_ref = layer.clone();
            let start = |listeners, cancel| async move {
                let span = debug_span!("layer", digest = %layer_ref.blob, bytes = layer_ref.size);
                store.ensure_layer(layer_ref, source, lower_waiters, (listeners, cancel)).instrument(span).await
            };
            let key = (scope.clone(), claims.clone());
            let (waiter, shared) = self.transfers.layers.attach_or_start(key, listeners, Duration::ZERO, start);
            waiters.shared |= shared;
            waiters.all.push((layer.chain.clone(), waiter));
        }
        waiters
    }
}

impl LayerWaiters {
    async fn wait(self, cancel: &CancelToken) -> Result<Vec<LayerEntry>, Error> {
        let waiting = self.all.iter().map(|(chain, waiter)| async { Ok((chain.clone(), waiter.wait().await?)) });
        let result = cancel.guard(try_join_all(waiting)).await;
        if result.is_err() {
            // From the top, because a layer waits for those below it.
            for (_, waiter) in self.all.into_iter().rev() {
                if let Some(pending) = waiter.release() {
                    let _ = pending.await;
                }
            }
        }
        result
    }
}
