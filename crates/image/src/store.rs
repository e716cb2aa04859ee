//! The store: one directory, its index, its state in memory.
//!
//! ```text
//! <root>/index.redb            names, images, layers
//!        format, lock, reserve version of the index; held while open; space for removals on a full disk
//!        content/              OCI image layout: blobs by digest
//!        content/records/      what the index lists, a second time
//!        layers/<chain>        unpacked layers
//!        snapshots/<key>/      record.json, upper, work
//!        tmp/                  on its way in or out; what a crash left there is deleted in the background
//! ```

use std::{
    fs::{self, File},
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::AtomicBool,
        mpsc::{RecvTimeoutError, channel},
    },
    thread,
    time::{Duration, Instant},
};

use rustix::{fs::FlockOperation, io::Errno};

use crate::{
    Digest, Disk, DiskFormat, Error, Image, Reference, Registries, Usage,
    content::Content,
    error::at,
    index::{Change, Index, busy},
    pull::Pulls,
    records::Records,
    recovery,
    registry::Clients,
    reserve::Reserve,
    state::Shared,
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
    pub(crate) state: Shared,
    pub(crate) trash: Arc<Trash>,
    /// Threads for what waits for the store's disk.
    pub(crate) disk: Disk,
    /// Threads for what waits for the disk that has the settings of registries.
    pub(crate) settings: Disk,
    clients: RwLock<Arc<Clients>>,
    pub(crate) pulls: Pulls,
    pub(crate) figures: crate::Figures,
    pub(crate) sampler: std::sync::OnceLock<crate::snapshot::Sampler>,
    pub(crate) keeper: std::sync::OnceLock<crate::keeper::Keeper>,
    pub(crate) index: Arc<Index>,
    pub(crate) records: Records,
    pub(crate) reserve: Reserve,
    pub(crate) sync: crate::pull::Sync,
    pub(crate) collection_is_queued: AtomicBool,
    /// Whether something that nothing needs could not be removed.
    pub(crate) left_over: AtomicBool,
    /// Its lock keeps a second process out.
    _lock: File,
    /// Held by whoever changes the index or the directories that it lists.
    writer: Mutex<()>,
}

impl Store {
    /// Opens the store, or makes it. Snapshots of an earlier boot are dropped (no container survives one). A missing or
    /// damaged index is made again from the content store. After an unclean boot, layers and blobs are compared with
    /// their digests in the background.
    ///
    /// # Errors
    /// The directory can't be written, another process has it open, or the index is of a newer format.
    pub fn open(dir: &Path, registries: Registries) -> Result<Self, Error> {
        registries.check()?;
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700).create(dir).map_err(at("create", dir))?;
        // Layers hold setuid programs of strangers: no user of this host may reach them. A file system that is
        // read-only would refuse the mode that the directory has already.
        let mode = fs::metadata(dir).map_err(at("read the mode of", dir))?.permissions().mode();
        if mode & 0o7777 != 0o700 {
            fs::set_permissions(dir, fs::Permissions::from_mode(0o700)).map_err(at("set the mode of", dir))?;
        }
        let root = dir.canonicalize().map_err(at("resolve", dir))?;
        let lock = lock(&root)?;
        let reserve = Reserve::new(root.join("reserve"));
        let (index, found) = Index::open(&root.join("index.redb"), &reserve)?;
        for name in ["layers", "snapshots", "tmp"] {
            let path = root.join(name);
            builder.mode(0o711).create(&path).map_err(at("create", &path))?;
        }
        let temporary = root.join("tmp");
        let content = Content::open(&root.join("content"), &temporary)?;
        let records = Records::open(root.join("content/records"))?;
        let inner = Inner {
            clients: RwLock::new(Arc::new(Clients::new(&registries))),
            content,
            state: Shared::default(),
            trash: Arc::new(Trash::open(&temporary)?),
            disk: Disk::new(&root),
            settings: Disk::new(settings_path(&registries)),
            pulls: Pulls::default(),
            figures: crate::Figures::default(),
            sampler: std::sync::OnceLock::new(),
            keeper: std::sync::OnceLock::new(),
            index: Arc::new(index),
            collection_is_queued: AtomicBool::new(false),
            left_over: AtomicBool::new(false),
            records,
            reserve,
            sync: crate::pull::Sync::open(&root)?,
            _lock: lock,
            writer: Mutex::new(()),
            root,
        };
        if let Err(error) = DiskFormat::write(&inner.root) {
            tracing::warn!("open the image store: {error}");
        }
        recovery::recover(&inner, found)?;
        inner.reserve.refill();
        let inner = Arc::new(inner);
        crate::snapshot::start_sampling(&inner)?;
        crate::keeper::start(&inner)?;
        Ok(Self { inner })
    }

    /// Asks registries by these settings from now on; pulls that run end as they began.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Invalid`]: as [`Registries::check`]; nothing was changed.
    pub fn reconfigure(&self, registries: Registries) -> Result<(), Error> {
        registries.check()?;
        let fresh = Arc::new(Clients::new(&registries));
        *self.inner.clients.write().unwrap_or_else(PoisonError::into_inner) = fresh;
        Ok(())
    }

    /// The store's directory, absolute.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.inner.root
    }

    /// An image by tag, digest reference, id, or unambiguous prefix of an id (at least six hex digits).
    ///
    /// # Errors
    /// The name is neither a reference nor an id, or the prefix fits several images.
    pub fn find(&self, name: &str) -> Result<Option<Image>, Error> {
        let id = self.inner.resolve(name)?;
        Ok(id.and_then(|id| self.inner.state.lock().image(&id)))
    }

    /// Threads for what waits for the store's disk: snapshots are made, mounted and discarded there.
    #[must_use]
    pub fn disk(&self) -> &Disk {
        &self.inner.disk
    }

    /// All images.
    #[must_use]
    pub fn list(&self) -> Vec<Image> {
        self.inner.state.lock().list()
    }

    /// What layers, blobs and writable layers take; the latter as sampled last.
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

    /// Removes an image by any of its names, with all of its tags; unknown names succeed. Layers that a container uses
    /// stay until the container is gone.
    ///
    /// # Errors
    /// The name is not valid or not clear, or the disk failed.
    pub async fn remove(&self, name: &str) -> Result<(), Error> {
        let Some(id) = self.inner.resolve_hidden(name)? else { return Ok(()) };
        let inner = self.inner.clone();
        let disk = inner.disk.clone();
        disk.run_long(move || inner.remove_image(&id)).await
    }

    /// Takes one tag from an image, which goes with its last one. By a digest or an id it is [`Store::remove`].
    ///
    /// # Errors
    /// As [`Store::remove`].
    pub async fn untag(&self, name: &str) -> Result<(), Error> {
        let Some(id) = self.inner.resolve_hidden(name)? else { return Ok(()) };
        let tag = self.inner.reference(name).ok().filter(|reference| reference.digest().is_none());
        let tag = tag.and_then(|reference| reference.tagged());
        let inner = self.inner.clone();
        let disk = inner.disk.clone();
        disk.run_long(move || match tag.filter(|tag| inner.is_one_of_several(tag, &id)) {
            Some(tag) => inner.remove_tag(&tag),
            None => inner.remove_image(&id),
        })
        .await
    }
}

fn settings_path(registries: &Registries) -> &Path {
    registries.config_dir.as_deref().unwrap_or(Path::new("/etc"))
}

impl Inner {
    /// Serializes changes of what the index lists.
    pub(crate) fn writer(&self) -> MutexGuard<'_, ()> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The settings that hold now.
    pub(crate) fn clients(&self) -> Arc<Clients> {
        self.clients.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn reference(&self, name: &str) -> Result<Reference, Error> {
        Reference::parse(name, self.clients().registries.default_host())
    }

    pub(crate) fn limits(&self) -> Limits {
        Limits { bytes: self.clients().registries.max_layer_bytes.unwrap_or(128 << 30), entries: 20_000_000 }
    }

    pub(crate) fn layer_path(&self, chain: &Digest) -> PathBuf {
        self.root.join("layers").join(chain.hex())
    }

    /// The id that a name means; `None`: no image that is shown.
    pub(crate) fn resolve(&self, name: &str) -> Result<Option<Digest>, Error> {
        let id = self.resolve_hidden(name)?;
        Ok(id.filter(|id| self.state.lock().images.contains_key(id)))
    }

    /// The id that a name means, also of an image that is hidden until it is whole again.
    fn resolve_hidden(&self, name: &str) -> Result<Option<Digest>, Error> {
        let state = self.state.lock();
        let hex = name.strip_prefix("sha256:").unwrap_or(name);
        let is_hex = (6..=64).contains(&hex.len()) && hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        if is_hex && hex.len() == 64 {
            let id = Digest::from_hex(hex)?;
            return Ok((state.images.contains_key(&id) || state.incomplete.contains_key(&id)).then_some(id));
        }
        // A name goes before an id's prefix: `deadbeef` may well be a repository.
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
        let mut fitting = state.images.keys().chain(state.incomplete.keys()).filter(|id| id.hex().starts_with(hex));
        match (fitting.next(), fitting.next()) {
            (Some(_), Some(_)) => Err(Error::invalid(format!("image id {name} is not clear: several begin so"))),
            (found, _) => Ok(found.cloned()),
        }
    }
}

/// How long an opening waits for a store that is being closed.
const CLOSING: Duration = Duration::from_secs(3);
/// How long a closing waits for the disk: an upgrade of the program waits for it.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);

/// Keeps other processes out of the store.
fn lock(root: &Path) -> Result<File, Error> {
    let path = root.join("lock");
    let file = File::options().create(true).truncate(false).write(true).open(&path).map_err(at("open", &path))?;
    let deadline = Instant::now() + CLOSING;
    loop {
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            // A store that is being closed may be in use by one of its own threads.
            Err(Errno::WOULDBLOCK) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(20)),
            Err(Errno::WOULDBLOCK) => return Err(busy(root)),
            Err(cause) => return Err(at("lock", &path)(cause)),
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let (index, state, reserve) = (self.index.clone(), self.state.clone(), self.reserve.clone());
        let (sender, closed) = channel();
        let close = move || {
            // Only a store that says so was closed: anything else is verified after the next boot.
            let change = Change { meta: vec![("closed", "yes".into())], ..Change::default() };
            let everything = || state.lock().everything();
            let written = match index.apply(&change, everything) {
                Err(_) if reserve.release() => index.apply(&change, everything),
                written => written,
            };
            index.close();
            let _ = sender.send(written);
        };
        let started = thread::Builder::new().name("image-close".into()).spawn(close);
        let warn = |why: &dyn std::fmt::Display| {
            tracing::warn!("close the image store: {why}; its layers are compared with their digests after a reboot");
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
