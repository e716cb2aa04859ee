//! Work on files of the node that belong to others: volumes and logs of containers. Their file systems may be slow, or hang
//! forever in a system call that no signal ends.
//!
//! ```text
//!            a place of 64              after SLOW: its place is free again            at its limit
//! admitted ───────────────▶ working ────────────────────────────────────────▶ stuck ──────────────▶ given up
//!  waits while its file system          counted against its file system                 the thread stays, counted
//!  has STUCK_MAX stuck threads
//! ```
//! So a file system that hangs costs a bounded number of threads, and nobody waits for it who does not use it.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot},
    time::{Instant, timeout, timeout_at},
};

use crate::{Error, ErrorKind, mount_source::MountTable};

/// How many work at once, of some 500 threads that may block.
const PLACES: usize = 64;
/// Work that takes longer gives up its place.
const SLOW: Duration = Duration::from_millis(500);
/// Threads that may be stuck in one file system before no other is admitted to it.
const STUCK_MAX: usize = 8;
/// The same, of all file systems together.
const ALL_STUCK_MAX: usize = 192;

/// See the module.
#[derive(Clone)]
pub(crate) struct HostFiles(Arc<Shared>);

struct Shared {
    places: Arc<Semaphore>,
    stuck: Mutex<HashMap<String, usize>>,
    /// Some thread is stuck no longer.
    freed: Notify,
}

impl Default for HostFiles {
    fn default() -> Self {
        let (stuck, freed) = (Mutex::default(), Notify::new());
        Self(Arc::new(Shared { places: Arc::new(Semaphore::new(PLACES)), stuck, freed }))
    }
}

/// How far work has come: shows which path it hangs at.
pub(crate) struct Progress {
    paths: Vec<PathBuf>,
    at: AtomicUsize,
    hold: Mutex<Hold>,
}

/// What a thread that works holds.
#[derive(Default)]
struct Hold {
    place: Option<OwnedSemaphorePermit>,
    stuck: Option<Stuck>,
    given_up: bool,
    done: bool,
}

/// One thread that is counted as stuck.
struct Stuck {
    shared: Arc<Shared>,
    source: String,
}

impl Progress {
    fn lock(&self) -> MutexGuard<'_, Hold> {
        self.hold.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// To be called before the path of this index is touched.
    ///
    /// # Errors
    /// Nobody waits for the work any longer.
    pub(crate) fn at(&self, index: usize) -> Result<(), Error> {
        self.at.store(index, Ordering::Release);
        match self.lock().given_up {
            true => Err(Error::unavailable("nobody waits for it any longer")),
            false => Ok(()),
        }
    }

    fn path(&self) -> &Path {
        self.paths.get(self.at.load(Ordering::Acquire)).map_or(Path::new("/"), PathBuf::as_path)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        self.stuck.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first of these paths whose file system admits no more work.
    fn closed(&self, paths: &[PathBuf], most: usize) -> Option<PathBuf> {
        let stuck = self.lock().clone();
        if stuck.is_empty() {
            return None;
        }
        let table = MountTable::read();
        let is_full = stuck.values().sum::<usize>() >= ALL_STUCK_MAX;
        let is_closed = |path: &&PathBuf| is_full || stuck.get(&table.source(path)).is_some_and(|count| *count >= most);
        paths.iter().find(is_closed).cloned()
    }
}

impl Stuck {
    fn new(shared: &Arc<Shared>, path: &Path) -> Self {
        let source = MountTable::read().source(path);
        *shared.lock().entry(source.clone()).or_default() += 1;
        Self { shared: Arc::clone(shared), source }
    }
}

impl Drop for Stuck {
    fn drop(&mut self) {
        let mut stuck = self.shared.lock();
        if let Some(count) = stuck.get_mut(&self.source) {
            *count -= 1;
            if *count == 0 {
                stuck.remove(&self.source);
            }
        }
        drop(stuck);
        self.shared.freed.notify_waiters();
    }
}

/// Ends the count of a thread, also when its work panics.
struct End(Arc<Progress>);

impl Drop for End {
    fn drop(&mut self) {
        *self.0.lock() = Hold { done: true, ..Hold::default() };
    }
}

impl HostFiles {
    /// Runs work on these paths on a thread that may block, for at most `limit`, with the time it waits to be admitted. A
    /// relative path is no path but whose files they are: their file system is held to be its own.
    ///
    /// # Errors
    /// `DeadlineExceeded`, with the path that it hangs at; what the work returns.
    pub(crate) async fn visit<T: Send + 'static>(
        &self,
        paths: Vec<PathBuf>,
        limit: Duration,
        work: impl FnOnce(&Progress) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let until = Instant::now() + limit;
        while let Some(path) = self.closed(&paths, STUCK_MAX, until).await {
            if Instant::now() >= until {
                return Err(hangs(&path, limit));
            }
        }
        self.run(paths, until, limit, work).await
    }

    /// The same, where work on a file system in which any thread is stuck fails at once.
    pub(crate) async fn try_visit<T: Send + 'static>(
        &self,
        paths: Vec<PathBuf>,
        limit: Duration,
        work: impl FnOnce(&Progress) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        match self.0.closed(&paths, 1) {
            Some(path) => Err(hangs(&path, limit)),
            None => self.run(paths, Instant::now() + limit, limit, work).await,
        }
    }

    /// A path that is not admitted, after something changed; `None`: all are.
    async fn closed(&self, paths: &[PathBuf], most: usize, until: Instant) -> Option<PathBuf> {
        let freed = self.0.freed.notified();
        tokio::pin!(freed);
        // Registered before the look, so that nothing is missed in between.
        freed.as_mut().enable();
        let path = self.0.closed(paths, most)?;
        let _ = timeout_at(until, freed).await;
        Some(path)
    }

    async fn run<T: Send + 'static>(
        &self,
        paths: Vec<PathBuf>,
        until: Instant,
        limit: Duration,
        work: impl FnOnce(&Progress) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let shared = &self.0;
        let place = timeout_at(until, Arc::clone(&shared.places).acquire_owned()).await;
        let place = place.map_err(|_| Error::unavailable("too many other containers open their volumes"))?;
        let place = place.map_err(|_| Error::unavailable("the daemon is ending"))?;
        let hold = Mutex::new(Hold { place: Some(place), ..Hold::default() });
        let progress = Arc::new(Progress { paths, at: AtomicUsize::new(0), hold });
        let (done, mut outcome) = oneshot::channel();
        let (theirs, span) = (Arc::clone(&progress), tracing::Span::current());
        tokio::task::spawn_blocking(move || {
            let end = End(theirs);
            // Its caller may have given up.
            let _ = done.send(span.in_scope(|| work(&end.0)));
        });
        let bug = |_| Error::internal("a bug: work on the node's files panicked");
        if let Ok(outcome) = timeout(SLOW, &mut outcome).await {
            return outcome.map_err(bug)?;
        }
        let stuck = Stuck::new(shared, progress.path());
        progress.become_stuck(stuck);
        match timeout_at(until, outcome).await {
            Ok(outcome) => outcome.map_err(bug)?,
            Err(_) => {
                progress.give_up();
                Err(hangs(progress.path(), limit))
            }
        }
    }
}

impl Progress {
    fn become_stuck(&self, stuck: Stuck) {
        let mut hold = self.lock();
        if !hold.done {
            drop(hold.place.take());
            hold.stuck = Some(stuck);
        }
    }

    fn give_up(&self) {
        self.lock().given_up = true;
    }
}

fn hangs(path: &Path, limit: Duration) -> Error {
    let seconds = limit.as_secs_f32();
    let message = match path.is_absolute() {
        true => format!(
            "{}: no answer from the file system on {} within {seconds} s; check its device or server",
            path.display(),
            MountTable::read().point(path).display()
        ),
        false => format!("{}: its files give no answer within {seconds} s", path.display()),
    };
    Error::new(ErrorKind::DeadlineExceeded, message)
}

#[cfg(test)]
mod tests;
