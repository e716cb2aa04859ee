//! One layer: downloaded, unpacked while it arrives, verified twice, made visible after the one below it.

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
    growing::{self, Reader, Writer},
};
use crate::{
    Digest, Error, ErrorKind, Stage,
    error::at,
    flight::{Cancel, Landing},
    index::{LayerRecord, LayerRef},
    progress::{Listeners, Meter},
    registry::Session,
    store::Inner,
    trash::Trash,
    unpack::{self, Unpacked, unpack},
};

/// Where a layer's blob comes from, if it is not here.
#[derive(Clone)]
pub(crate) enum Source {
    /// A registry; the endpoint that had the manifest is asked first.
    Registry { session: Arc<Session>, endpoint: usize },
    /// An archive that was read into the content store before.
    Store,
}

impl Source {
    /// The registry, and the repository in it, as the reference names them.
    pub(super) fn scopes(&self) -> (String, String) {
        match self {
            Self::Registry { session, .. } => {
                (session.host.clone(), format!("{}/{}", session.host, session.repository))
            }
            Self::Store => (String::new(), "/".to_owned()),
        }
    }
}

/// A file or directory on its way in; removed unless it was renamed.
/// With the failed syncs counted before its first byte was written.
pub(super) struct Scratch(pub(super) PathBuf, Arc<Trash>, u64);

impl Drop for Scratch {
    fn drop(&mut self) {
        // Not here: this may be an async thread. What can't be removed is found when the store is opened next.
        self.1.leave(std::mem::take(&mut self.0));
    }
}

/// An unpacked layer that is not visible yet: no one's but its pulls'.
pub(crate) struct Directory {
    pub(super) scratch: Scratch,
    pub(super) record: LayerRecord,
}

/// A layer that can be committed.
#[derive(Clone)]
pub(crate) enum Ready {
    /// Was visible before.
    Listed,
    /// Whole, but perhaps not on disk.
    Unpacked(Arc<Directory>),
}

impl Ready {
    /// The failed syncs counted before it was written; `None`: it was on disk before.
    pub(super) fn errors(&self) -> Option<u64> {
        match self {
            Self::Listed => None,
            Self::Unpacked(directory) => Some(directory.scratch.2),
        }
    }
}

/// A layer to be fetched.
#[derive(Clone, Copy)]
struct Wanted<'a> {
    layer: &'a LayerRef,
    /// Not only its blob.
    unpacked: bool,
    meter: &'a Meter,
    cancel: &'a Cancel,
}

/// Layers below one, lowest first.
pub(super) type Below = Vec<(Digest, Landing<Ready>)>;

impl Inner {
    pub(super) async fn bring_layer(
        self: Arc<Self>,
        layer: LayerRef,
        source: Source,
        below: Below,
        (listeners, cancel): (Listeners, Cancel),
    ) -> Result<Ready, Error> {
        let meter = Meter::new(&layer.blob, layer.size, &listeners);
        let named = |error: Error| error.during(format!("layer {}", layer.blob));
        let listed = self.state.lock().has_intact(&layer.chain);
        let stored = self.is_stored(&layer).await?;
        if listed && stored {
            meter.end(Stage::Exists);
            return Ok(Ready::Listed);
        }
        let unpacked = match (&source, stored) {
            (Source::Registry { session, endpoint }, false) => {
                let wanted = Wanted { layer: &layer, unpacked: !listed, meter: &meter, cancel: &cancel };
                self.fetch_from_any(wanted, session, *endpoint).await.map_err(named)?
            }
            _ if listed => None,
            (source, _) => {
                meter.report(Stage::Unpacking, 0);
                let path = self.content.path(&layer.blob);
                match (self.unpack_file(path, (&layer, true), &cancel).await, source) {
                    // Its size is right and its bytes are not: it is replaced by the registry's.
                    (Err(error), Source::Registry { session, endpoint }) if error.kind == ErrorKind::Corrupt => {
                        tracing::warn!("layer {}: {error}; it is fetched again", layer.blob);
                        let wanted = Wanted { layer: &layer, unpacked: true, meter: &meter, cancel: &cancel };
                        self.fetch_from_any(wanted, session, *endpoint).await.map_err(named)?
                    }
                    (unpacked, _) => unpacked.map_err(named)?,
                }
            }
        };
        let ready = match unpacked {
            None => Ready::Listed,
            Some((scratch, unpacked)) => {
                let mut lower = Vec::with_capacity(below.len());
                for (chain, landing) in below {
                    lower.push((chain, cancel.guard(landing.wait()).await?));
                }
                let store = self.clone();
                let settled = self.disk.run_long(move || store.settle(scratch, &unpacked, &lower)).await;
                Ready::Unpacked(Arc::new(settled.map_err(named)?))
            }
        };
        meter.end(Stage::Done);
        Ok(ready)
    }

    async fn is_stored(self: &Arc<Self>, layer: &LayerRef) -> Result<bool, Error> {
        let (store, blob, size) = (self.clone(), layer.blob.clone(), layer.size);
        self.disk.run(move || Ok(store.content.present(&blob) == Some(size))).await
    }

    /// From one endpoint after the other, while what they have is damaged.
    async fn fetch_from_any(
        self: &Arc<Self>,
        wanted: Wanted<'_>,
        session: &Arc<Session>,
        mut first: usize,
    ) -> Result<Option<(Scratch, Unpacked)>, Error> {
        for _ in 1..session.endpoints.len() {
            match self.fetch(wanted, session, first).await {
                Err(error) if error.kind == ErrorKind::Corrupt => {
                    let shown = session.endpoints[first].shown();
                    tracing::warn!("layer {} from {shown}: {error}", wanted.layer.blob);
                    first = (first + 1) % session.endpoints.len();
                }
                other => return other,
            }
        }
        self.fetch(wanted, session, first).await
    }

    /// Downloads, and unpacks or verifies meanwhile.
    async fn fetch(
        self: &Arc<Self>,
        wanted: Wanted<'_>,
        session: &Arc<Session>,
        first: usize,
    ) -> Result<Option<(Scratch, Unpacked)>, Error> {
        let Wanted { layer, meter, cancel, .. } = wanted;
        let mut stream = session.blob(&layer.blob, first);
        cancel.guard(stream.open()).await?;
        let (file, writer, reader) = self.create_download().await?;
        let gave_way = reader.gave_way();
        let unpacking = self.unpack_from(reader, (layer, wanted.unpacked), cancel);
        let downloading = async {
            let target = (file.0.clone(), writer);
            let work = download::layer((session, stream), layer, target, &self.disk, meter, cancel);
            let result = work.instrument(debug_span!("download")).await;
            meter.report(Stage::Unpacking, layer.size);
            result
        };
        let (downloaded, mut unpacked) = tokio::join!(downloading, unpacking);
        // In this order: an archive that makes no sense is most likely a damaged download.
        downloaded?;
        if unpacked.is_err() && gave_way.load(Ordering::Relaxed) {
            unpacked = self.unpack_file(file.0.clone(), (layer, wanted.unpacked), cancel).await;
        }
        let unpacked = unpacked?;
        let (store, blob) = (self.clone(), layer.blob.clone());
        self.disk.run(move || store.content.accept(&file.0, &blob)).await?;
        Ok(unpacked)
    }

    /// A file for a download, and both ends of it.
    async fn create_download(self: &Arc<Self>) -> Result<(Scratch, Writer, Reader), Error> {
        let store = self.clone();
        let create = move || {
            let path = store.content.temporary("download");
            File::create_new(&path).map_err(at("create", &path))?;
            let file = Scratch(path.clone(), store.trash.clone(), store.sync.errors());
            let (writer, reader) = growing::pair(&path, store.pulls.unpacks.clone()).map_err(at("open", &path))?;
            Ok((file, writer, reader))
        };
        self.disk.run(create).await
    }

    /// Unpacks a file that is whole.
    async fn unpack_file(
        &self,
        path: PathBuf,
        wanted: (&LayerRef, bool),
        cancel: &Cancel,
    ) -> Result<Option<(Scratch, Unpacked)>, Error> {
        let open = move || File::open(&path).map_err(at("open", &path));
        self.unpack_from(self.disk.run(open).await?, wanted, cancel).await
    }

    /// Unpacks into a new directory, and compares the digest with what the configuration says. Where the layer is here
    /// and only its blob is not, the comparison is all: a blob that is not the layer's must not get into the image's
    /// record.
    async fn unpack_from(
        &self,
        source: impl std::io::Read + Send + 'static,
        (layer, wanted): (&LayerRef, bool),
        cancel: &Cancel,
    ) -> Result<Option<(Scratch, Unpacked)>, Error> {
        let _turn = self.pulls.unpacks.take().await?;
        let (path, limits, diff_id) = (self.content.temporary("layer"), self.limits(), layer.diff_id.clone());
        let (trash, errors) = (self.trash.clone(), self.sync.errors());
        let (began, cancel) = (Instant::now(), cancel.clone());
        let unpacking = self.disk.thread("image-layer", move || {
            if !wanted {
                return is_same(&unpack::diff_id(source, limits, &cancel)?, &diff_id).map(|()| None);
            }
            fs::DirBuilder::new().mode(0o700).create(&path).map_err(at("create", &path))?;
            let directory = Scratch(path, trash, errors);
            let root = open_directory(&directory.0)?;
            let unpacked = unpack(source, root, limits, &cancel).map_err(|error| error.during("unpack"))?;
            is_same(&unpacked.diff_id, &diff_id).map(|()| Some((directory, unpacked)))
        });
        let unpacked = unpacking.instrument(debug_span!("unpack")).await;
        if unpacked.is_ok() {
            self.figures.unpack_took.observe(began.elapsed());
        }
        unpacked
    }
}

fn is_same(got: &Digest, wanted: &Digest) -> Result<(), Error> {
    match got == wanted {
        true => Ok(()),
        false => Err(Error::corrupt(format!(
            "digest mismatch after decompression: got {got}, the image's configuration says {wanted}"
        ))),
    }
}

pub(super) fn open_directory(path: &Path) -> Result<rustix::fd::OwnedFd, Error> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).map_err(at("open", path))
}
