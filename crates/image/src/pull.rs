//! Pulls: resolve the reference, fetch manifest and configuration, fetch every layer, list the image.

mod commit;
mod download;
mod growing_file;
mod layer;
mod layers;

use std::{collections::BTreeSet, sync::Arc, time::Instant};

use telemetry::Gauge;
use tracing::{Instrument, debug_span};

pub(crate) use self::{commit::LayerEntry, layer::Source};
use crate::{
    Credentials, Digest, Error, Image, ProgressCallback, Reference, Store,
    image::{CONFIG_MAX, ParsedConfig, parse_config},
    index::{ImageRecord, LayerRef},
    manifest::{self, Descriptor, Document, Manifest},
    module,
    platform::{Platform, no_match},
    progress::Listeners,
    registry::{FetchedManifest, Session},
    single_flight::CancelToken,
    state::Lease,
    store::Inner,
};

impl Store {
    /// Pulls an image: resolves, downloads, verifies and unpacks it. Concurrent pulls of one image share one operation
    /// (single-flight), and so do pulls of one layer from one registry. A pull without callers continues for
    /// [`crate::TransferLimits::grace`], so that a retry finds it, and is then cancelled. An image that is in the store
    /// is returned only after the registry confirmed that the caller may pull it.
    ///
    /// # Errors
    /// See [`crate::ErrorKind`]; the message names the image, the registry or layer, and what to do. Layers that were
    /// complete before a failure are removed.
    pub async fn pull(
        &self,
        reference: &str,
        credentials: Option<&Credentials>,
        progress: Option<ProgressCallback>,
    ) -> Result<Image, Error> {
        let reference = self.inner.reference(reference)?;
        let listeners = Listeners::default();
        if let Some(progress) = progress {
            listeners.add(progress);
        }
        // A caller with other credentials must succeed with those.
        let key = format!("{reference} {}", fingerprint(credentials));
        let (store, credentials) = (self.inner.clone(), credentials.cloned());
        let grace = store.clients().registries.transfers.grace;
        let (waiter, _) =
            self.inner.transfers.images.attach_or_start(key, &listeners, grace, |listeners, cancel| async move {
                let name = reference.to_string();
                let (start, running) = (Instant::now(), Gauge::hold(&store.metrics.pulls_running));
                let work = store.clone().pull_image(reference, credentials, listeners, cancel);
                let pulled = work.instrument(debug_span!("pull", image = name)).await;
                drop(running);
                store.metrics.count_pull(&pulled);
                if pulled.is_ok() {
                    store.metrics.pull_duration.observe(start.elapsed());
                }
                if pulled.is_err() {
                    // Layers that were complete do not belong to any image.
                    let disk = store.disk.clone();
                    disk.run_long(move || store.collect()).await?;
                }
                pulled.map(Arc::new).map_err(|error| error.during(format!("pull image {name}")))
            });
        waiter.wait().await.map(|image| (*image).clone())
    }
}

fn fingerprint(credentials: Option<&Credentials>) -> String {
    credentials.map_or_else(String::new, |c| {
        let all = [&c.username, &c.password, &c.identity_token, &c.registry_token];
        Digest::of(format!("{all:?}").as_bytes()).to_string()
    })
}

/// The manifest for this machine, and how it was found.
struct ResolvedManifest {
    /// Digest that the reference resolves to: that of the index, if there is one.
    target: Digest,
    digest: Digest,
    manifest: Manifest,
    /// Texts of the index and the manifest, which are to be stored.
    documents: Vec<Vec<u8>>,
    endpoint: usize,
}

impl Inner {
    async fn pull_image(
        self: Arc<Self>,
        reference: Reference,
        credentials: Option<Credentials>,
        listeners: Listeners,
        cancel: CancelToken,
    ) -> Result<Image, Error> {
        let (clients, slots) = (self.clients(), self.transfers.slots.clone());
        let session = Session::open(&self.settings, clients, slots, &reference, credentials.as_ref()).await?;
        let session = Arc::new(session);
        if let Some(image) = cancel.guard(self.find_current(&reference, &session)).await? {
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
        let ready = self.ensure_layers(&layers, &source, &listeners, &cancel).await?;
        let record = ImageRecord {
            id: resolved.manifest.config.digest.clone(),
            manifest: resolved.digest,
            size: small + layers.iter().map(|layer| layer.size).sum::<u64>(),
            layers,
            blobs,
            incomplete: false,
            annotations: module::annotations(&resolved.manifest.annotations),
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

    /// Returns the image if the reference still resolves to it, all of its blobs are in the store, and the registry
    /// allows this caller to pull it.
    async fn find_current(self: &Arc<Self>, reference: &Reference, session: &Session) -> Result<Option<Image>, Error> {
        let tagged = reference.tagged();
        let digest = match (reference.digest(), &tagged) {
            (Some(digest), _) => Some(digest.clone()),
            (None, Some(tagged)) if self.state.lock().names.contains_key(tagged) => {
                session.digest(reference.target()).await
            }
            _ => None,
        };
        let Some(digest) = digest else { return Ok(None) };
        let Some((image, blobs)) = self.find_listed(tagged.as_deref(), &reference.pinned(&digest)) else {
            return Ok(None);
        };
        let store = self.clone();
        let all_exist = move || Ok::<_, Error>(blobs.iter().all(|blob| store.content.size(blob).is_some()));
        if !self.disk.run(all_exist).await? {
            return Ok(None);
        }
        if reference.digest().is_some() {
            // The registry's response to HEAD of the tag was its permission. For a digest there was no request yet.
            session.authorize_pull(&digest).await?;
        }
        Ok(Some(image))
    }

    /// Returns the image of this full name and its blobs, if the tag refers to the same image.
    fn find_listed(&self, tagged: Option<&str>, pinned: &str) -> Option<(Image, BTreeSet<Digest>)> {
        let state = self.state.lock();
        let id = state.names.get(pinned)?;
        if tagged.is_some_and(|tagged| state.names.get(tagged) != Some(id)) {
            return None;
        }
        Some((state.image(id)?, state.images.get(id)?.record.blobs.clone()))
    }

    /// Stores the configuration and the manifests of an image.
    async fn put_documents(self: &Arc<Self>, config: Vec<u8>, documents: Vec<Vec<u8>>) -> Result<Vec<Digest>, Error> {
        let store = self.clone();
        let put = move || [config].iter().chain(&documents).map(|bytes| store.content.put(bytes)).collect();
        self.disk.run(put).await
    }

    fn lease_for(&self, resolved: &ResolvedManifest, layers: &[LayerRef]) -> Lease {
        let documents = resolved.documents.iter().map(|bytes| Digest::of(bytes));
        let layers = layers.iter().flat_map(|layer| [layer.blob.clone(), layer.chain.clone()]);
        self.state.lease(documents.chain(layers).chain([resolved.manifest.config.digest.clone()]))
    }

    async fn config(self: &Arc<Self>, session: &Session, resolved: &ResolvedManifest) -> Result<Vec<u8>, Error> {
        let descriptor = &resolved.manifest.config;
        let (store, digest) = (self.clone(), descriptor.digest.clone());
        // A damaged blob is fetched again.
        let stored = move || Ok::<_, Error>(store.content.get(&digest, CONFIG_MAX).ok());
        match self.disk.run(stored).await? {
            Some(bytes) => Ok(bytes),
            None => download::small(session, descriptor, resolved.endpoint, CONFIG_MAX)
                .await
                .map_err(|error| error.during(format!("image configuration {}", descriptor.digest))),
        }
    }
}

/// Fetches the manifest of `target`, or through an index the one for this machine.
async fn resolve(session: &Session, target: &str) -> Result<ResolvedManifest, Error> {
    let fetched = session.manifest(target).await?;
    let target = fetched.digest.clone();
    let FetchedManifest { bytes, digest, media_type, endpoint } = fetched;
    let index = match manifest::parse(&bytes, &media_type)? {
        Document::Image(manifest) => {
            return Ok(ResolvedManifest { target, digest, manifest, documents: vec![bytes], endpoint });
        }
        Document::Index(index) => index,
    };
    let Descriptor { digest, .. } = manifest::choose(&index, &Platform::host())?;
    let inner = session.manifest(digest.as_str()).await?;
    match manifest::parse(&inner.bytes, &inner.media_type)? {
        Document::Image(manifest) => Ok(ResolvedManifest {
            target,
            digest: digest.clone(),
            manifest,
            documents: vec![bytes, inner.bytes],
            endpoint: inner.endpoint,
        }),
        Document::Index(_) => Err(Error::invalid(format!("index {target} refers to another index"))),
    }
}

/// Checks the platform in the configuration, which is the only one that an image without an index has.
pub(crate) fn check_platform(parsed: &ParsedConfig) -> Result<(), Error> {
    let platform = parsed.config.platform();
    let host = Platform::host();
    match host.runs(&platform) {
        true => Ok(()),
        false => Err(no_match(&host, &platform.to_string())),
    }
}
