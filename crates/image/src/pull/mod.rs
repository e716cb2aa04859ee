//! A pull: resolve, fetch manifest and configuration, bring every layer, list the image.

mod commit;
mod download;
mod growing;
mod layer;
mod layers;
mod slots;
mod sync;
mod turns;

use std::{collections::BTreeSet, sync::Arc, time::Instant};

use telemetry::Gauge;
use tokio::sync::Semaphore;
use tracing::{Instrument, debug_span};

pub(crate) use self::{commit::Layered, layer::Source, slots::Slot, sync::Sync};
use self::{layer::Ready, layers::LayerKey, slots::Slots, turns::Turns};
use crate::{
    Credentials, Digest, Error, Image, Progress, Reference, Store,
    flight::{Cancel, Flights},
    image::{Parsed, parse_config},
    index::{ImageRecord, LayerRef},
    manifest::{self, Descriptor, Document, Manifest},
    platform::{Platform, wrong},
    progress::Listeners,
    recovery::CONFIG_MAX,
    registry::{Fetched, Session},
    state::Lease,
    store::Inner,
};

/// Archives that are read or written at the same time: each has a thread, and waits for its client.
const ARCHIVES_MAX: usize = 8;

/// Running pulls.
pub(crate) struct Pulls {
    images: Flights<String, Arc<Image>>,
    layers: Flights<LayerKey, Ready>,
    pub(crate) slots: Slots,
    unpacks: Arc<Turns>,
    pub(crate) archives: Semaphore,
}

impl Default for Pulls {
    fn default() -> Self {
        Self {
            images: Flights::default(),
            layers: Flights::default(),
            slots: Slots::default(),
            unpacks: Arc::default(),
            archives: Semaphore::new(ARCHIVES_MAX),
        }
    }
}

impl Store {
    /// Resolves, downloads, verifies, unpacks. Pulls of one image at the same time join, and so do pulls of one layer
    /// from one registry. A pull whose last caller hung up waits for that caller's retry for
    /// [`crate::Transfers::grace`], and is cancelled then. An image that is here is returned only after the registry
    /// confirmed that the caller may pull it.
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
        let grace = store.clients().registries.transfers.grace;
        let (landing, _) = self.inner.pulls.images.join(key, &listeners, grace, |listeners, cancel| async move {
            let name = reference.to_string();
            let (began, running) = (Instant::now(), Gauge::hold(&store.figures.pulling));
            let work = store.clone().pull_image(reference, credentials, listeners, cancel);
            let pulled = work.instrument(debug_span!("pull", image = name)).await;
            drop(running);
            store.figures.pulled(&pulled);
            if pulled.is_ok() {
                store.figures.pull_took.observe(began.elapsed());
            }
            if pulled.is_err() {
                // Layers that were complete belong to no image.
                let disk = store.disk.clone();
                disk.run_long(move || store.collect()).await?;
            }
            pulled.map(Arc::new).map_err(|error| error.during(format!("pull image {name}")))
        });
        landing.wait().await.map(|image| (*image).clone())
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
        cancel: Cancel,
    ) -> Result<Image, Error> {
        let session = Arc::new(Session::open(self.clone(), &reference, credentials.as_ref()).await?);
        if let Some(image) = cancel.guard(self.have(&reference, &session)).await? {
            return Ok(image);
        }
        let resolving = resolve(&session, reference.target()).instrument(debug_span!("resolve"));
        let resolved = cancel.guard(resolving).await?;
        let config = cancel.guard(self.config(&session, &resolved).instrument(debug_span!("configuration"))).await?;
        let parsed = parse_config(&config)?;
        check_platform(&parsed)?;
        let layers = manifest::layers(&resolved.manifest, &parsed.diff_ids)?;
        let lease = self.lease_for(&resolved, &layers);
        let small: u64 = resolved.documents.iter().chain([&config]).map(|bytes| bytes.len() as u64).sum();
        let mut blobs: BTreeSet<Digest> = layers.iter().map(|layer| layer.blob.clone()).collect();
        blobs.extend(self.put_documents(config, resolved.documents).await?);
        let source = Source::Registry { session, endpoint: resolved.endpoint };
        let ready = self.bring_layers(&layers, &source, &listeners, &cancel).await?;
        let record = ImageRecord {
            id: resolved.manifest.config.digest.clone(),
            manifest: resolved.digest,
            size: small + layers.iter().map(|layer| layer.size).sum::<u64>(),
            layers,
            blobs,
            incomplete: false,
        };
        let names = reference.tagged().into_iter().chain([reference.pinned(&resolved.target)]).collect();
        let disk = self.disk.clone();
        let list = disk.run_long(move || {
            let image = self.list_image(record, parsed, names, ready);
            drop(lease);
            image
        });
        list.instrument(debug_span!("commit")).await
    }

    /// The image, if the reference still means what is here whole, and if the registry lets this caller have it.
    async fn have(self: &Arc<Self>, reference: &Reference, session: &Session) -> Result<Option<Image>, Error> {
        let tagged = reference.tagged();
        let digest = match (reference.digest(), &tagged) {
            (Some(digest), _) => Some(digest.clone()),
            (None, Some(tagged)) if self.state.lock().names.contains_key(tagged) => {
                session.digest(reference.target()).await
            }
            _ => None,
        };
        let Some(digest) = digest else { return Ok(None) };
        let Some((image, blobs)) = self.listed(tagged.as_deref(), &reference.pinned(&digest)) else { return Ok(None) };
        let store = self.clone();
        let whole = move || Ok::<_, Error>(blobs.iter().all(|blob| store.content.size(blob).is_some()));
        if !self.disk.run(whole).await? {
            return Ok(None);
        }
        if reference.digest().is_some() {
            // The registry's answer to the tag's HEAD is its leave; a digest has got none yet.
            session.authorize_pull(&digest).await?;
        }
        Ok(Some(image))
    }

    /// The image of this full name with its blobs, if the tag means the same.
    fn listed(&self, tagged: Option<&str>, pinned: &str) -> Option<(Image, BTreeSet<Digest>)> {
        let state = self.state.lock();
        let id = state.names.get(pinned)?;
        if tagged.is_some_and(|tagged| state.names.get(tagged) != Some(id)) {
            return None;
        }
        Some((state.image(id)?, state.images.get(id)?.record.blobs.clone()))
    }

    /// Stores the small blobs of an image.
    async fn put_documents(self: &Arc<Self>, config: Vec<u8>, documents: Vec<Vec<u8>>) -> Result<Vec<Digest>, Error> {
        let store = self.clone();
        let put = move || [config].iter().chain(&documents).map(|bytes| store.content.put(bytes)).collect();
        self.disk.run(put).await
    }

    fn lease_for(&self, resolved: &Resolved, layers: &[LayerRef]) -> Lease {
        let documents = resolved.documents.iter().map(|bytes| Digest::of(bytes));
        let layers = layers.iter().flat_map(|layer| [layer.blob.clone(), layer.chain.clone()]);
        self.state.lease(documents.chain(layers).chain([resolved.manifest.config.digest.clone()]))
    }

    async fn config(self: &Arc<Self>, session: &Session, resolved: &Resolved) -> Result<Vec<u8>, Error> {
        let descriptor = &resolved.manifest.config;
        let (store, digest) = (self.clone(), descriptor.digest.clone());
        // What is damaged is fetched again.
        let stored = move || Ok::<_, Error>(store.content.get(&digest, CONFIG_MAX).ok());
        match self.disk.run(stored).await? {
            Some(bytes) => Ok(bytes),
            None => download::small(session, descriptor, resolved.endpoint, CONFIG_MAX)
                .await
                .map_err(|error| error.during(format!("image configuration {}", descriptor.digest))),
        }
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
