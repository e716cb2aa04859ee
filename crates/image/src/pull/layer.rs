//! One layer: downloaded, unpacked at the same time, verified twice (blob and diff id), and visible after the layer
//! below it.

use std::{
    fs::{self, File},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

use rustix::fs::{Mode, OFlags};
use tracing::{Instrument, debug_span};

use super::{
    download,
    growing_file::{self, Reader, Writer},
};
use crate::{
    Digest, Error, ErrorKind, Stage,
    error::failed_to,
    index::LayerRef,
    module,
    progress::{Listeners, Meter},
    registry::Session,
    single_flight::{CancelToken, Waiter},
    store::Inner,
    transfers::{ReadyLayer, Scratch},
    unpack::{self, UnpackResult, unpack},
};

/// Where a layer's blob comes from if it is not in the content store.
#[derive(Clone)]
pub(crate) enum Source {
    /// A registry. The endpoint that had the manifest is tried first.
    Registry { session: Arc<Session>, endpoint: usize },
    /// The content store, for imported archives and repairs.
    Store,
}

impl Source {
    /// Returns the registry, and the repository in it, as named by the reference.
    pub(super) fn scopes(&self) -> (String, String) {
        match self {
            Self::Registry { session, .. } => {
                (session.host.clone(), format!("{}/{}", session.host, session.repository))
            }
            Self::Store => (String::new(), "/".to_owned()),
        }
    }
}

/// A request to fetch a layer.
#[derive(Clone, Copy)]
struct LayerRequest<'a> {
    layer: &'a LayerRef,
    /// Whether to unpack it; otherwise only its blob is fetched.
    unpack: bool,
    meter: &'a Meter,
    cancel: &'a CancelToken,
}

/// The layers below a layer, lowest first.
pub(super) type LowerWaiters = Vec<(Digest, Waiter<ReadyLayer>)>;

impl Inner {
    pub(super) async fn ensure_layer(
        self: Arc<Self>,
        layer: LayerRef,
        source: Source,
        lower_waiters: LowerWaiters,
        (listeners, cancel): (Listeners, CancelToken),
    ) -> Result<ReadyLayer, Error> {
        let meter = Meter::new(&layer.blob, layer.size, &listeners);
        let named = |error: Error| error.during(format!("layer {}", layer.blob));
        let listed = self.state.lock().has_intact(&layer.chain);
        let stored = self.is_stored(&layer).await?;
        if listed && stored {
            meter.end(Stage::Exists);
            return Ok(ReadyLayer::Listed);
        }
        let unpacked = match (&source, stored) {
            (Source::Registry { session, endpoint }, false) => {
                let request = LayerRequest { layer: &layer, unpack: !listed, meter: &meter, cancel: &cancel };
                self.fetch_from_any(request, session, *endpoint).await.map_err(named)?
            }
            _ if listed => None,
            (source, _) => {
                meter.report(Stage::Unpacking, 0);
                let path = self.content.path(&layer.blob);
                match (self.unpack_file(path, (&layer, true), &cancel).await, source) {
                    // The blob has the right size but damaged bytes: it is replaced by that of the registry.
                    (Err(error), Source::Registry { session, endpoint }) if error.kind == ErrorKind::Corrupt => {
                        tracing::warn!("layer {}: {error}; fetching it again", layer.blob);
                        let request = LayerRequest { layer: &layer, unpack: true, meter: &meter, cancel: &cancel };
                        self.fetch_from_any(request, session, *endpoint).await.map_err(named)?
                    }
                    (unpacked, _) => unpacked.map_err(named)?,
                }
            }
        };
        let ready = match unpacked {
            None => ReadyLayer::Listed,
            Some((scratch, unpacked)) => {
                let mut lower = Vec::with_capacity(lower_waiters.len());
                for (chain, waiter) in lower_waiters {
                    lower.push((chain, cancel.guard(waiter.wait()).await?));
                }
                let store = self.clone();
                let finished = self.disk.run_long(move || store.finish_layer(scratch, &unpacked, &lower)).await;
                ReadyLayer::Unpacked(Arc::new(finished.map_err(named)?))
            }
        };
        meter.end(Stage::Done);
        Ok(ready)
    }

    async fn is_stored(self: &Arc<Self>, layer: &LayerRef) -> Result<bool, Error> {
        let (store, blob, size) = (self.clone(), layer.blob.clone(), layer.size);
        self.disk.run(move || Ok(store.content.present(&blob) == Some(size))).await
    }

    /// Fetches a layer from one endpoint after the other, as long as their blobs are damaged.
    async fn fetch_from_any(
        self: &Arc<Self>,
        request: LayerRequest<'_>,
        session: &Arc<Session>,
        mut first: usize,
    ) -> Result<Option<(Scratch, UnpackResult)>, Error> {
        for _ in 1..session.endpoints.len() {
            match self.fetch(request, session, first).await {
                Err(error) if error.kind == ErrorKind::Corrupt => {
                    let server = session.endpoints[first].display_name();
                    tracing::warn!("layer {} from {server}: {error}", request.layer.blob);
                    first = (first + 1) % session.endpoints.len();
                }
                other => return other,
            }
        }
        self.fetch(request, session, first).await
    }

    /// Downloads a layer, and unpacks or verifies it at the same time.
    async fn fetch(
        self: &Arc<Self>,
        request: LayerRequest<'_>,
        session: &Arc<Session>,
        first: usize,
    ) -> Result<Option<(Scratch, UnpackResult)>, Error> {
        let LayerRequest { layer, meter, cancel, .. } = request;
        let mut stream = session.blob(&layer.blob, first);
        cancel.guard(stream.open()).await?;
        let (file, writer, reader) = self.create_download().await?;
        let yielded = reader.yielded();
        let unpacking = self.unpack_from(reader, (layer, request.unpack), cancel);
        let downloading = async {
            let target = (file.0.clone(), writer);
            let work = download::layer((stream, &self.metrics.fetched_bytes), layer, target, &self.disk, meter, cancel);
            let result = work.instrument(debug_span!("download")).await;
            meter.report(Stage::Unpacking, layer.size);
            result
        };
        let (downloaded, mut unpacked) = tokio::join!(downloading, unpacking);
        // The error of the download comes first: an invalid archive is most likely a damaged download.
        downloaded?;
        if unpacked.is_err() && yielded.load(Ordering::Relaxed) {
            unpacked = self.unpack_file(file.0.clone(), (layer, request.unpack), cancel).await;
        }
        let unpacked = unpacked?;
        let (store, blob) = (self.clone(), layer.blob.clone());
        self.disk.run(move || store.content.accept(&file.0, &blob)).await?;
        Ok(unpacked)
    }

    /// Creates the file for a download, with its writing and its reading side.
    async fn create_download(self: &Arc<Self>) -> Result<(Scratch, Writer, Reader), Error> {
        let store = self.clone();
        let create = move || {
            let path = store.content.temporary("download");
            File::create_new(&path).map_err(failed_to("create", &path))?;
            let file = Scratch(path.clone(), store.trash.clone(), store.sync.failed_syncs());
            let (writer, reader) =
                growing_file::pair(&path, store.transfers.unpacks.clone()).map_err(failed_to("open", &path))?;
            Ok((file, writer, reader))
        };
        self.disk.run(create).await
    }

    /// Unpacks a complete file.
    async fn unpack_file(
        &self,
        path: PathBuf,
        layer: (&LayerRef, bool),
        cancel: &CancelToken,
    ) -> Result<Option<(Scratch, UnpackResult)>, Error> {
        let open = move || File::open(&path).map_err(failed_to("open", &path));
        self.unpack_from(self.disk.run(open).await?, layer, cancel).await
    }

    /// Unpacks into a new directory, and compares the diff id with that in the configuration. If the layer exists and
    /// only its blob is missing, nothing is unpacked and only the diff id is compared: the blob of another layer must
    /// not get into the image's record.
    async fn unpack_from(
        &self,
        source: impl std::io::Read + Send + 'static,
        (layer, unpacks): (&LayerRef, bool),
        cancel: &CancelToken,
    ) -> Result<Option<(Scratch, UnpackResult)>, Error> {
        let _permit = self.transfers.unpacks.acquire().await?;
        let (path, limits, diff_id) = (self.content.temporary("layer"), self.limits(), layer.diff_id.clone());
        let (trash, failed_syncs) = (self.trash.clone(), self.sync.failed_syncs());
        let (start, cancel, is_module) = (Instant::now(), cancel.clone(), module::is_layer(&layer.media_type));
        let unpacking = self.disk.thread("image-layer", move || {
            if !unpacks {
                return is_same(&unpack::diff_id(source, limits, &cancel)?, &diff_id).map(|()| None);
            }
            fs::DirBuilder::new().mode(0o700).create(&path).map_err(failed_to("create", &path))?;
            let directory = Scratch(path, trash, failed_syncs);
            let root = open_directory(&directory.0)?;
            let unpacked = match is_module {
                true => module::unpack_module(source, &root, limits, &cancel),
                false => unpack(source, root, limits, &cancel),
            };
            let unpacked = unpacked.map_err(|error| error.during("unpack"))?;
            is_same(&unpacked.diff_id, &diff_id).map(|()| Some((directory, unpacked)))
        });
        let unpacked = unpacking.instrument(debug_span!("unpack")).await;
        if unpacked.is_ok() {
            self.metrics.unpack_duration.observe(start.elapsed());
        }
        unpacked
    }
}

fn is_same(got: &Digest, expected: &Digest) -> Result<(), Error> {
    match got == expected {
        true => Ok(()),
        false => Err(Error::corrupt(format!(
            "digest mismatch after decompression: got {got}, the image's configuration has {expected}"
        ))),
    }
}

pub(super) fn open_directory(path: &Path) -> Result<rustix::fd::OwnedFd, Error> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).map_err(failed_to("open", path))
}
