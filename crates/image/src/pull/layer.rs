//! One layer: downloaded, unpacked while it arrives, verified twice, made visible after the one below it.

use std::{
    fs::{self, File},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};

use rustix::fs::{Mode, OFlags};
use tracing::{Instrument, debug_span};

use super::{download, growing};
use crate::{
    Digest, Error, ErrorKind, Stage, Usage,
    error::at,
    flight::Landing,
    index::LayerRef,
    progress::{Listeners, Meter},
    registry::Session,
    store::Inner,
    trash::Trash,
    unpack::{Unpacked, unpack},
};

/// Where a layer's blob comes from, if it is not here.
#[derive(Clone)]
pub(crate) enum Source {
    /// A registry; the endpoint that had the manifest is asked first.
    Registry { session: Arc<Session>, endpoint: usize },
    /// An archive that was read into the content store before.
    Store,
}

/// A file or folder on its way in; removed unless it was renamed.
pub(super) struct Scratch(pub(super) PathBuf, Arc<Trash>);

impl Drop for Scratch {
    fn drop(&mut self) {
        // What can't be removed is found when the store is opened next.
        let _ = self.1.take(&self.0);
    }
}

/// An unpacked layer that is not visible yet: no one's but its pulls'.
pub(crate) struct Folder {
    pub(super) scratch: Scratch,
    pub(super) usage: Usage,
    pub(super) length: u64,
}

/// A layer that can be committed.
#[derive(Clone)]
pub(crate) enum Ready {
    /// Was visible before.
    Listed,
    /// Whole, but perhaps not on disk.
    Unpacked(Arc<Folder>),
}

/// Layers below one, lowest first.
pub(super) type Below = Vec<(Digest, Landing<Ready>)>;

impl Inner {
    pub(super) async fn bring_layer(
        self: Arc<Self>,
        layer: LayerRef,
        source: Source,
        below: Below,
        listeners: Listeners,
    ) -> Result<Ready, Error> {
        let meter = Meter::new(&layer.blob, layer.size, &listeners);
        let named = |error: Error| error.during(format!("layer {}", layer.blob));
        let listed = self.state.lock().layers.contains_key(&layer.chain);
        let stored = self.content.size(&layer.blob) == Some(layer.size);
        if listed && stored {
            meter.end(Stage::Exists);
            return Ok(Ready::Listed);
        }
        let unpacked = match (&source, stored) {
            (Source::Registry { session, endpoint }, false) => {
                self.fetch_from_any(&layer, session, *endpoint, (!listed, &meter)).await.map_err(named)?
            }
            _ if listed => None,
            _ => Some(self.unpack_stored(&layer, &meter).await.map_err(named)?),
        };
        let ready = match unpacked {
            None => Ready::Listed,
            Some((scratch, unpacked)) => {
                let mut lower = Vec::with_capacity(below.len());
                for (chain, landing) in below {
                    lower.push((chain, landing.await?));
                }
                let store = self.clone();
                let settled = crate::blocking(move || store.settle(scratch, &unpacked.implied, &lower)).await;
                Ready::Unpacked(Arc::new(settled.map_err(named)?))
            }
        };
        meter.end(Stage::Done);
        Ok(ready)
    }

    /// From one endpoint after the other, while what they have is damaged.
    async fn fetch_from_any(
        &self,
        layer: &LayerRef,
        session: &Arc<Session>,
        mut first: usize,
        wanted: (bool, &Meter),
    ) -> Result<Option<(Scratch, Unpacked)>, Error> {
        for _ in 1..session.endpoints.len() {
            match self.fetch(layer, session, first, wanted).await {
                Err(error) if error.kind == ErrorKind::Corrupt => {
                    tracing::warn!("layer {} from {}: {error}", layer.blob, session.endpoints[first].shown());
                    first = (first + 1) % session.endpoints.len();
                }
                other => return other,
            }
        }
        self.fetch(layer, session, first, wanted).await
    }

    /// Downloads, and unpacks meanwhile if that is wanted.
    async fn fetch(
        &self,
        layer: &LayerRef,
        session: &Arc<Session>,
        first: usize,
        (wanted, meter): (bool, &Meter),
    ) -> Result<Option<(Scratch, Unpacked)>, Error> {
        let _slot = self.pulls.downloads.acquire().await.map_err(at("wait for", &self.root))?;
        let path = self.content.temporary("download");
        File::create_new(&path).map_err(at("create", &path))?;
        let file = Scratch(path.clone(), self.trash.clone());
        let (writer, reader) = growing::pair(&path).map_err(at("open", &path))?;
        let unpacking = async {
            match wanted {
                true => self.unpack_from(reader, layer).await.map(Some),
                false => Ok(None),
            }
        };
        let downloading = async {
            let work = download::layer(session, layer, first, (path, writer), meter);
            let result = work.instrument(debug_span!("download")).await;
            meter.report(Stage::Unpacking, layer.size);
            result
        };
        let (downloaded, unpacked) = tokio::join!(downloading, unpacking);
        // In this order: an archive that makes no sense is most likely a damaged download.
        downloaded?;
        let unpacked = unpacked?;
        self.content.accept(&file.0, &layer.blob)?;
        Ok(unpacked)
    }

    async fn unpack_stored(&self, layer: &LayerRef, meter: &Meter) -> Result<(Scratch, Unpacked), Error> {
        meter.report(Stage::Unpacking, 0);
        let path = self.content.path(&layer.blob);
        let file = File::open(&path).map_err(at("open", &path))?;
        self.unpack_from(file, layer).await
    }

    /// Unpacks into a new folder, and compares the digest with what the configuration says.
    async fn unpack_from(
        &self,
        source: impl std::io::Read + Send + 'static,
        layer: &LayerRef,
    ) -> Result<(Scratch, Unpacked), Error> {
        let _slot = self.pulls.unpacks.acquire().await.map_err(at("wait for", &self.root))?;
        let (path, limits, diff_id) = (self.content.temporary("layer"), self.limits(), layer.diff_id.clone());
        let trash = self.trash.clone();
        let began = Instant::now();
        let unpacking = crate::blocking(move || {
            fs::DirBuilder::new().mode(0o700).create(&path).map_err(at("create", &path))?;
            let folder = Scratch(path, trash);
            let root = open_folder(&folder.0)?;
            let unpacked = unpack(source, root, limits).map_err(|error| error.during("unpack"))?;
            match unpacked.diff_id == diff_id {
                true => Ok((folder, unpacked)),
                false => Err(Error::corrupt(format!(
                    "digest mismatch after decompression: got {}, the image's configuration says {diff_id}",
                    unpacked.diff_id
                ))),
            }
        });
        let unpacked = unpacking.instrument(debug_span!("unpack")).await;
        if unpacked.is_ok() {
            self.figures.unpack_took.observe(began.elapsed());
        }
        unpacked
    }
}

pub(super) fn open_folder(path: &Path) -> Result<rustix::fd::OwnedFd, Error> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).map_err(at("open", path))
}
