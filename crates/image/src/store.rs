//! The store: one directory, its index, its state in memory.
//!
//! ```text
//! <root>/index.redb            names, images, layers
//!        format, lock, reserve version of the index; held while open; space for removals on a full disk
//!        content/              OCI image layout: blobs by digest
//!        content/records/      copies of the records of the index
//!        layers/<chain>        unpacked layers
//!        snapshots/<key>/      record.json, upper, work
//!        tmp/                  temporary files; what a crash left there is deleted in the background
//! ```

use std::{
    fs::File,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock,
        atomic::AtomicBool,
        mpsc::{RecvTimeoutError, sync_channel},
    },
    thread,
    time::Duration,
};

use crate::{
    Digest, Disk, Error, Image, Reference, Registries, Usage,
    background::BackgroundThread,
    content::Content,
    file_system_sync::FileSystemSync,
    index::{Change, Index},
    records::Records,
    registry::Clients,
    reserve::Reserve,
    state::SharedState,
    transfers::Transfers,
    trash::Trash,
    unpack::Limits,
};

/// Images, layers and snapshots under one directory. Cheap to clone.
#[derive(Clone)]
pub struct Store {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) root: PathBuf,
    pub(crate) content: Content,
    pub(crate) state: SharedState,
    pub(crate) trash: Arc<Trash>,
    /// Threads for work that waits for the store's disk.
    pub(crate) disk: Disk,
    /// Threads for work that waits for the disk with the settings of registries.
    pub(crate) settings: Disk,
    pub(crate) clients: RwLock<Arc<Clients>>,
    pub(crate) transfers: Transfers,
    pub(crate) metrics: crate::Metrics,
    pub(crate) sampler: OnceLock<BackgroundThread>,
    pub(crate) repair_thread: OnceLock<BackgroundThread>,
    pub(crate) index: Arc<Index>,
    pub(crate) records: Records,
    pub(crate) reserve: Reserve,
    pub(crate) sync: FileSystemSync,
    pub(crate) collection_is_queued: AtomicBool,
    /// Whether something unused could not be removed.
    pub(crate) left_over: AtomicBool,
    /// Its lock prevents other processes from opening the store.
    pub(crate) _lock: File,
    /// The writer lock, which is held while the index or a directory that it lists is changed.
    pub(crate) writer: Mutex<()>,
}

impl Store {
    /// Uses these settings of registries from now on. Running pulls keep those they started with.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Invalid`]: see [`Registries::check`]; nothing was changed.
    pub fn reconfigure(&self, registries: Registries) -> Result<(), Error> {
        registries.check()?;
        let fresh = Arc::new(Clients::new(&registries));
        *self.inner.clients.write().unwrap_or_else(PoisonError::into_inner) = fresh;
        Ok(())
    }

    /// Returns the absolute path of the store's directory.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.inner.root
    }

    /// Finds an image by tag, digest reference, id, or unambiguous prefix of an id (at least six hex digits).
    ///
    /// # Errors
    /// The name is neither a reference nor an id, or the prefix matches several images.
    pub fn find(&self, name: &str) -> Result<Option<Image>, Error> {
        let id = self.inner.resolve(name)?;
        Ok(id.and_then(|id| self.inner.state.lock().image(&id)))
    }

    /// Returns the threads for work that waits for the store's disk. Snapshots are created, mounted and discarded
    /// there.
    #[must_use]
    pub fn disk(&self) -> &Disk {
        &self.inner.disk
    }

    /// Returns all images, sorted by their first name.
    #[must_use]
    pub fn list(&self) -> Vec<Image> {
        self.inner.state.lock().list()
    }

    /// Returns the disk usage of layers, blobs and writable layers, the latter as of the last sample.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let state = self.inner.state.lock();
        let mut usage = Usage::default();
        state.layers.values().for_each(|layer| usage += layer.usage);
        state.snapshots.values().for_each(|snapshot| usage += snapshot.usage);
        state.images.values().for_each(|known| {
            usage += Usage { bytes: known.record.size, inodes: known.record.blobs.len() as u64 };
        });
        usage
    }
}

impl Inner {
    /// Takes the writer lock, which serializes changes of what the index lists.
    pub(crate) fn writer(&self) -> MutexGuard<'_, ()> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the HTTP clients with the current settings.
    pub(crate) fn clients(&self) -> Arc<Clients> {
        self.clients.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn reference(&self, name: &str) -> Result<Reference, Error> {
        Reference::parse(name, self.clients().registries.default_host())
    }

    pub(crate) fn limits(&self) -> Limits {
        Limits { bytes: self.clients().registries.max_layer_bytes.unwrap_or(128 << 30), entries: 20_000_000 }
    }

    /// Starts a round of the repair now.
    pub(crate) fn wake_repair(&self) {
        if let Some(repair_thread) = self.repair_thread.get() {
            repair_thread.wake();
        }
    }

    pub(crate) fn layer_path(&self, chain: &Digest) -> PathBuf {
        self.root.join("layers").join(chain.hex())
    }

    /// Returns the id of the image with this name; `None` if no visible image has it.
    pub(crate) fn resolve(&self, name: &str) -> Result<Option<Digest>, Error> {
        let id = self.resolve_hidden(name)?;
        Ok(id.filter(|id| self.state.lock().images.contains_key(id)))
    }

    /// Returns the id of the image with this name, which may be hidden.
    pub(crate) fn resolve_hidden(&self, name: &str) -> Result<Option<Digest>, Error> {
        let state = self.state.lock();
        let hex = name.strip_prefix("sha256:").unwrap_or(name);
        let is_hex = (6..=64).contains(&hex.len()) && hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        if is_hex && hex.len() == 64 {
            let id = Digest::from_hex(hex)?;
            return Ok((state.images.contains_key(&id) || state.incomplete.contains_key(&id)).then_some(id));
        }
        // A name takes precedence over the prefix of an id: `deadbeef` may be a repository.
        if let Ok(reference) = self.reference(name) {
            let full = match reference.digest() {
                Some(digest) => reference.pinned(digest),
                None => reference.tagged().unwrap_or_default(),
            };
            if let Some(id) = state.names.get(&full).or_else(|| state.hidden(&full)) {
                return Ok(Some(id.clone()));
            }
        } else if !is_hex {
            self.reference(name)?;
        }
        if !is_hex {
            return Ok(None);
        }
        let mut matching = state.images.keys().chain(state.incomplete.keys()).filter(|id| id.hex().starts_with(hex));
        match (matching.next(), matching.next()) {
            (Some(_), Some(_)) => {
                Err(Error::invalid(format!("image id {name} is ambiguous: it is the prefix of several ids")))
            }
            (id, _) => Ok(id.cloned()),
        }
    }
}

/// How long closing waits for the disk. An upgrade of the program waits for it.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);

impl Drop for Inner {
    fn drop(&mut self) {
        let (index, state, reserve) = (self.index.clone(), self.state.clone(), self.reserve.clone());
        let (sender, closed) = sync_channel(1);
        let close = move || {
            // Only a store with this entry counts as closed. Any other is verified after the next boot.
            let change = Change { meta: vec![("closed", "yes".into())], ..Change::default() };
            let contents = || state.lock().index_contents();
            let written = match index.apply(&change, contents) {
                Err(_) if reserve.release() => index.apply(&change, contents),
                written => written,
            };
            index.close();
            let _ = sender.send(written);
        };
        let started = thread::Builder::new().name("image-close".into()).spawn(close);
        let warn = |reason: &dyn std::fmt::Display| {
            tracing::warn!(
                "close the image store: {reason}; its layers are verified against their digests after a reboot"
            );
        };
        match closed.recv_timeout(CLOSE_TIMEOUT) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => warn(&error),
            Err(RecvTimeoutError::Timeout) => {
                warn(&format_args!("the disk has not answered for {} s", CLOSE_TIMEOUT.as_secs()));
            }
            Err(RecvTimeoutError::Disconnected) => warn(&match started {
                Ok(_) => "the thread panicked".to_owned(),
                Err(cause) => format!("start a thread: {cause}"),
            }),
        }
    }
}
