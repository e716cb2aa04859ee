//! All layers of an image at once.

use std::{sync::Arc, time::Duration};

use futures_util::future::try_join_all;
use tracing::{Instrument, debug_span};

use super::{
    Layered,
    layer::{Ready, Source},
};
use crate::{
    Digest, Error,
    flight::{Cancel, Landing},
    index::LayerRef,
    progress::Listeners,
    store::Inner,
};

/// What a layer is joined by: where it comes from, and a digest of all that is claimed of it and of the layers below
/// (chain id, blob, size). An image that claims what is not so of another image's layer is on its own with that.
pub(crate) type LayerKey = (String, Digest);

/// Layers that an image waits for, lowest first.
struct Landings {
    all: Vec<(Digest, Landing<Ready>)>,
    /// Whether another image began one of them.
    joined: bool,
}

impl Inner {
    /// All layers, lowest first, at once. None is visible before [`Inner::list_image`]. After a failure nothing still
    /// runs that no other pull waits for.
    pub(crate) async fn bring_layers(
        self: &Arc<Self>,
        layers: &[LayerRef],
        source: &Source,
        listeners: &Listeners,
        cancel: &Cancel,
    ) -> Result<Vec<Layered>, Error> {
        let (registry, repository) = source.scopes();
        let landings = self.start_layers(layers, (source, registry), listeners);
        let joined = landings.joined;
        match landings.wait(cancel).await {
            // The other image's repository may have been at fault: its rights, or what it has.
            Err(_) if joined && !cancel.is_cancelled() => {
                self.start_layers(layers, (source, repository), listeners).wait(cancel).await
            }
            ended => ended,
        }
    }

    fn start_layers(
        self: &Arc<Self>,
        layers: &[LayerRef],
        (source, scope): (&Source, String),
        listeners: &Listeners,
    ) -> Landings {
        let mut landings = Landings { all: Vec::with_capacity(layers.len()), joined: false };
        let mut claims = Digest::of(b"");
        for layer in layers {
            claims = Digest::of(format!("{claims} {} {} {}", layer.chain, layer.blob, layer.size).as_bytes());
            let (store, own, source, below) = (self.clone(), layer.clone(), source.clone(), landings.all.clone());
            let start = |listeners, cancel| async move {
                let span = debug_span!("layer", digest = %own.blob, bytes = own.size);
                store.bring_layer(own, source, below, (listeners, cancel)).instrument(span).await
            };
            let key = (scope.clone(), claims.clone());
            let (landing, joined) = self.pulls.layers.join(key, listeners, Duration::ZERO, start);
            landings.joined |= joined;
            landings.all.push((layer.chain.clone(), landing));
        }
        landings
    }
}

impl Landings {
    async fn wait(self, cancel: &Cancel) -> Result<Vec<Layered>, Error> {
        let waiting = self.all.iter().map(|(chain, landing)| async { Ok((chain.clone(), landing.wait().await?)) });
        let ended = cancel.guard(try_join_all(waiting)).await;
        if ended.is_err() {
            // From the top: a layer waits for those below it.
            for (_, landing) in self.all.into_iter().rev() {
                if let Some(ending) = landing.release() {
                    let _ = ending.await;
                }
            }
        }
        ended
    }
}
