//! The opening of a store: its directory is created, locked and recovered, and its threads are started.

use std::{
    fs::{self, File},
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::Path,
    sync::{Arc, Mutex, OnceLock, RwLock, atomic::AtomicBool},
    time::{Duration, Instant},
};

use rustix::{fs::FlockOperation, io::Errno};

use crate::{
    Disk, DiskFormat, Error, Registries, Store,
    content::Content,
    error::failed_to,
    file_system_sync::FileSystemSync,
    index::{Index, busy},
    records::Records,
    recovery,
    registry::Clients,
    repair,
    reserve::Reserve,
    snapshot,
    state::SharedState,
    store::Inner,
    transfers::Transfers,
    trash::Trash,
};

/// How long an opening waits for a store that another process is closing.
const CLOSING: Duration = Duration::from_secs(3);

impl Store {
    /// Opens the store, or creates it. Snapshots of an earlier boot are removed, because no container survives a
    /// reboot. A missing or damaged index is rebuilt from the content store. After an unclean boot, layers and blobs
    /// are verified against their digests in the background.
    ///
    /// # Errors
    /// The directory can't be written, another process has it open, or the index is of a newer format.
    pub fn open(dir: &Path, registries: Registries) -> Result<Self, Error> {
        registries.check()?;
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700).create(dir).map_err(failed_to("create", dir))?;
        // Layers contain untrusted setuid programs, which no user of this host may reach. The mode is not set again,
        // because a read-only file system would refuse that.
        let mode = fs::metadata(dir).map_err(failed_to("read the mode of", dir))?.permissions().mode();
        if mode & 0o7777 != 0o700 {
            fs::set_permissions(dir, fs::Permissions::from_mode(0o700)).map_err(failed_to("set the mode of", dir))?;
        }
        #[expect(
            clippy::disallowed_methods,
            reason = "a directory of the administrator's, named by path in mount options"
        )]
        let root = dir.canonicalize().map_err(failed_to("resolve", dir))?;
        let lock = lock(&root)?;
        let reserve = Reserve::new(root.join("reserve"));
        let (index, index_state) = Index::open(&root.join("index.redb"), &reserve)?;
        for name in ["layers", "snapshots", "tmp"] {
            let path = root.join(name);
            builder.mode(0o711).create(&path).map_err(failed_to("create", &path))?;
        }
        let temporary = root.join("tmp");
        let content = Content::open(&root.join("content"), &temporary)?;
        let records = Records::open(root.join("content/records"))?;
        let inner = Inner {
            clients: RwLock::new(Arc::new(Clients::new(&registries))),
            content,
            state: SharedState::default(),
            trash: Arc::new(Trash::open(&temporary)?),
            disk: Disk::new(&root),
            settings: Disk::new(settings_path(&registries)),
            transfers: Transfers::default(),
            metrics: crate::Metrics::default(),
            sampler: OnceLock::new(),
            repair_thread: OnceLock::new(),
            index: Arc::new(index),
            collection_is_queued: AtomicBool::new(false),
            left_over: AtomicBool::new(false),
            records,
            reserve,
            sync: FileSystemSync::open(&root)?,
            _lock: lock,
            writer: Mutex::new(()),
            root,
        };
        if let Err(error) = DiskFormat::write(&inner.root) {
            tracing::warn!("open the image store: {error}");
        }
        recovery::recover(&inner, index_state)?;
        inner.reserve.refill();
        let inner = Arc::new(inner);
        snapshot::start_sampling(&inner)?;
        repair::start(&inner)?;
        Ok(Self { inner })
    }
}

fn settings_path(registries: &Registries) -> &Path {
    registries.config_dir.as_deref().unwrap_or(Path::new("/etc"))
}

/// Locks the store against other processes.
fn lock(root: &Path) -> Result<File, Error> {
    let path = root.join("lock");
    let file =
        File::options().create(true).truncate(false).write(true).open(&path).map_err(failed_to("open", &path))?;
    let deadline = Instant::now() + CLOSING;
    loop {
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            // One of its own threads may still use a store that is being closed.
            Err(Errno::WOULDBLOCK) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(20)),
            Err(Errno::WOULDBLOCK) => return Err(busy(root)),
            Err(cause) => return Err(failed_to("lock", &path)(cause)),
        }
    }
}
