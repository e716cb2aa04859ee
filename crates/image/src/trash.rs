//! Removal that no one waits for: renamed out of sight at once, deleted by one thread.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
        mpsc::{Sender, channel},
    },
    thread::{self, JoinHandle},
};

use telemetry::Gauge;

use crate::{Error, error::at, unpack::remove_path};

/// The thread, and where things go before it. What is left at a crash is removed when the store is opened.
pub(crate) struct Trash {
    dir: PathBuf,
    counter: AtomicU64,
    work: Mutex<Option<Sender<PathBuf>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Taken, not deleted yet.
    waiting: Arc<Gauge>,
}

impl Trash {
    /// `dir` is on the same file system as what will be removed.
    pub(crate) fn open(dir: &Path) -> Result<Self, Error> {
        let (work, todo) = channel::<PathBuf>();
        let waiting = Arc::new(Gauge::new());
        let counted = Arc::clone(&waiting);
        let run = move || {
            for path in todo {
                if let Err(cause) = remove_path(&path) {
                    tracing::warn!("remove {}: {cause}; it goes when the daemon starts next", path.display());
                }
                counted.add(-1);
            }
        };
        let thread =
            thread::Builder::new().name("image-trash".into()).spawn(run).map_err(at("start the thread for", dir))?;
        Ok(Self {
            dir: dir.to_owned(),
            counter: AtomicU64::new(0),
            work: Mutex::new(Some(work)),
            thread: Mutex::new(Some(thread)),
            waiting,
        })
    }

    /// Takes `path` away at once. A missing one is fine.
    pub(crate) fn take(&self, path: &Path) -> Result<(), Error> {
        let gone = self.dir.join(format!("trash-{}", self.counter.fetch_add(1, Ordering::Relaxed)));
        match fs::rename(path, &gone) {
            Ok(()) => {}
            Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(cause) => return Err(at("remove", path)(cause)),
        }
        if let Some(work) = &*self.work.lock().unwrap_or_else(PoisonError::into_inner) {
            self.waiting.add(1);
            let _ = work.send(gone);
        }
        Ok(())
    }
}

impl Trash {
    /// How many were taken and are not deleted yet.
    pub(crate) fn waiting(&self) -> u64 {
        u64::try_from(self.waiting.get()).unwrap_or(0)
    }
}

impl Drop for Trash {
    fn drop(&mut self) {
        drop(self.work.lock().unwrap_or_else(PoisonError::into_inner).take());
        if let Some(thread) = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = thread.join();
        }
    }
}
