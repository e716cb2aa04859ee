//! A pull: resolve, fetch manifest and configuration, bring every layer, list the image.

mod commit;
mod download;
mod growing;
mod layer;
mod sync;

use std::{collections::BTreeSet, sync::Arc, time::Instant};

use futures_util::future::join_all;
use telemetry::Gauge;
use tokio::sync::Semaphore;
use tracing::{Instrument, debug_span};

use self::layer::Ready;
pub(crate) use self::{commit::Layered, layer::Source, sync::Sync};
use crate::{
    Credentials, Digest, Error, Image, Progress, Reference, Store,
    flight::{Flights, Landing},
    image::{Parsed, parse_config},
    index::{ImageRecord, LayerRef},
    manifest::{self, Descriptor, Document, Manifest},
    platform::{Platform, wrong},
    progress::Listeners,
    recovery::CONFIG_MAX,
    registry::{Fetched, Session},
    state::{Known, Lease},
    store::Inner,
};

/// Layers of all pulls that are downloaded at once.
const DOWNLOADS: usize = 4;

/// Running pulls.
pub(crate) struct Pulls {
    images: Flights<String, Arc<Image>>,
    layers: Flights<Digest, Ready>,
    downloads: Arc<Semaphore>,
    unpacks: Arc<Semaphore>,
    sync: Sync,
}

impl Default for Pulls {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        Self {
            images: Flights::default(),
            layers: Flights::default(),
            downloads: Arc::new(Semaphore::new(DOWNLOADS)),
            // One more than cores: one may wait for its download.
            unpacks: Arc::new(Semaphore::new(cores + 1)),
            sync: Sync::default(),
        }
    }
}

impl Store {
    /// Resolves, downloads, verifies, unpacks. Pulls of one image at the same time join, and so do pulls of one layer.
    /// A pull goes on when its caller hangs up.
    ///
    /// # Errors
    /// See [`crate::ErrorKind`]; the message names the image, the registry or layer, and the way out. What was fetched
    /// whole before a failure is freed again.
    pub async fn pull(
        &self,
        reference: &str,
        credentials: Option<&Credentials>,
        progress: Option<Progress>,
    ) -> Result<Image, Error> {
        let reference = self.inner.reference(reference)?;
        let listeners = Listeners::default();
        if let Some(progress) = progress {
            listeners.add(progress);
        }
        // Who brings other credentials must succeed with them.
        let key = format!("{reference} {}", fingerprint(credentials));
        let (store, credentials) = (self.inner.clone(), credentials.cloned());
        let (landing, _) = self.inner.pulls.images.join(key, &listeners, |listeners| async move {
            let name = reference.to_string();
            let (began, running) = (Instant::now(), Gauge::hold(&store.figures.pulling));
            let work = store.clone().pull_image(reference, credentials, listeners);
            let pulled = work.instrument(debug_span!("pull", image = name)).await;
            drop(running);
            store.figures.pulled(&pulled);
            if pulled.is_ok() {
                store.figures.pull_took.observe(began.elapsed());
            }
            if pulled.is_err() {
                // Layers that were complete belong to no image.
                crate::blocking(move || store.collect()).await?;
            }
            pulled.map(Arc::new).map_err(|error| error.during(format!("pull image {name}")))
        });
        landing.await.map(|image| (*image).clone())
    }
}

fn fingerprint(credentials: Option<&Credentials>) -> String {
    credentials.map_or_else(String::new, |c| {
        let all = [&c.username, &c.password, &c.identity_token, &c.registry_token];
        Digest::of(format!("{all:?}").as_bytes()).to_string()
    })
}

/// The manifest for this machine, and what it was found through.
struct Resolved {
    /// Digest that the reference means: of the index, if there is one.
    target: Digest,
    digest: Digest,
    manifest: Manifest,
    /// Manifests on the way, to be stored.
    documents: Vec<Vec<u8>>,
    endpoint: usize,
}

impl Inner {
    async fn pull_image(
        self: Arc<Self>,
        reference: Reference,
        credentials: Option<Credentials>,
        listeners: Listeners,
    ) -> Result<Image, Error> {
        let session = Arc::new(Session::open(self.clone(), &reference, credentials.as_ref()).await?);
        if let Some(image) = self.have(&reference, &session).await? {
            return Ok(image);
        }
        let resolved = resolve(&session, reference.target()).instrument(debug_span!("resolve")).await?;
        let config = self.config(&session, &resolved).instrument(debug_span!("configuration")).await?;
        let parsed = parse_config(&config)?;
        check_platform(&parsed)?;
        let layers = manifest::layers(&resolved.manifest, &parsed.diff_ids)?;
        let lease = self.lease_for(&resolved, &layers);
        let mut blobs: BTreeSet<Digest> = layers.iter().map(|layer| layer.blob.clone()).collect();
        blobs.insert(self.content.put(&config)?);
        for document in &resolved.documents {
            blobs.insert(self.content.put(document)?);
        }
        let source = Source::Registry { session, endpoint: resolved.endpoint };
        let ready = self.bring_layers(&layers, &source, &listeners).await?;
        let small: u64 = resolved.documents.iter().chain([&config]).map(|bytes| bytes.len() as u64).sum();
        let record = ImageRecord {
            id: resolved.manifest.config.digest.clone(),
            manifest: resolved.digest,
            size: small + layers.iter().map(|layer| layer.size).sum::<u64>(),
            layers,
            blobs,
            incomplete: false,
        };
        let names = reference.tagged().into_iter().chain([reference.pinned(&resolved.target)]).collect();
        let list = crate::blocking(move || {
            let image = self.list_image(record, parsed, names, ready);
            drop(lease);
            image
        });
        list.instrument(debug_span!("commit")).await
    }

    /// The image, if the reference still means what is here whole.
    async fn have(&self, reference: &Reference, session: &Session) -> Result<Option<Image>, Error> {
        let tagged = reference.tagged();
        let digest = match (reference.digest(), &tagged) {
            (Some(digest), _) => Some(digest.clone()),
            (None, Some(tagged)) if self.state.lock().names.contains_key(tagged) => {
                session.digest(reference.target()).await
            }
            _ => None,
        };
        let Some(digest) = digest else { return Ok(None) };
        let state = self.state.lock();
        let Some(id) = state.names.get(&reference.pinned(&digest)) else { return Ok(None) };
        let same = tagged.is_none_or(|tagged| state.names.get(&tagged) == Some(id));
        let whole = |known: &Known| known.record.blobs.iter().all(|blob| self.content.size(blob).is_some());
        match state.images.get(id) {
            Some(known) if same && whole(known) => Ok(state.image(id)),
            _ => Ok(None),
        }
    }

    fn lease_for(&self, resolved: &Resolved, layers: &[LayerRef]) -> Lease {
        let documents = resolved.documents.iter().map(|bytes| Digest::of(bytes));
        let layers = layers.iter().flat_map(|layer| [layer.blob.clone(), layer.chain.clone()]);
        self.state.lease(documents.chain(layers).chain([resolved.manifest.config.digest.clone()]))
    }

    async fn config(&self, session: &Session, resolved: &Resolved) -> Result<Vec<u8>, Error> {
        let descriptor = &resolved.manifest.config;
        match self.content.get(&descriptor.digest, CONFIG_MAX) {
            Ok(bytes) => Ok(bytes),
            Err(_) => download::small(session, descriptor, resolved.endpoint, CONFIG_MAX)
                .await
                .map_err(|error| error.during(format!("image configuration {}", descriptor.digest))),
        }
    }

    /// All layers, lowest first, at once. None is visible before [`Inner::list_image`].
    pub(crate) async fn bring_layers(
        self: &Arc<Self>,
        layers: &[LayerRef],
        source: &Source,
        listeners: &Listeners,
    ) -> Result<Vec<Layered>, Error> {
        let mut all: Vec<(Digest, Landing<Ready>)> = Vec::with_capacity(layers.len());
        for layer in layers {
            let (store, own, source, below) = (self.clone(), layer.clone(), source.clone(), all.clone());
            let start = |listeners| async move {
                let span = debug_span!("layer", digest = %own.blob, bytes = own.size);
                store.bring_layer(own, source, below, listeners).instrument(span).await
            };
            let (landing, _) = self.pulls.layers.join(layer.chain.clone(), listeners, start);
            all.push((layer.chain.clone(), landing));
        }
        // To the end of all, so that nothing still runs when this returns; then the first error.
        let ended = join_all(all.iter().map(|(_, landing)| landing.clone())).await;
        all.into_iter().zip(ended).map(|((chain, _), ready)| Ok((chain, ready?))).collect()
    }
}

/// Follows an index to this machine's manifest.
async fn resolve(session: &Session, target: &str) -> Result<Resolved, Error> {
    let fetched = session.manifest(target).await?;
    let target = fetched.digest.clone();
    let Fetched { bytes, digest, media_type, endpoint } = fetched;
    let index = match manifest::parse(&bytes, &media_type)? {
        Document::Image(manifest) => {
            return Ok(Resolved { target, digest, manifest, documents: vec![bytes], endpoint });
        }
        Document::Index(index) => index,
    };
    let Descriptor { digest, .. } = manifest::choose(&index, &Platform::host())?;
    let inner = session.manifest(digest.as_str()).await?;
    match manifest::parse(&inner.bytes, &inner.media_type)? {
        Document::Image(manifest) => Ok(Resolved {
            target,
            digest: digest.clone(),
            manifest,
            documents: vec![bytes, inner.bytes],
            endpoint: inner.endpoint,
        }),
        Document::Index(_) => Err(Error::invalid(format!("index {target} leads to another index"))),
    }
}

/// An image without an index says in its configuration what it runs on.
pub(crate) fn check_platform(parsed: &Parsed) -> Result<(), Error> {
    let config = &parsed.config;
    let own =
        Platform { architecture: config.architecture.clone(), os: config.os.clone(), variant: config.variant.clone() };
    let host = Platform::host();
    match host.runs(&own) {
        true => Ok(()),
        false => Err(wrong(&host, &own.to_string())),
    }
}
