//! Work on files of the node that belong to others: volumes and logs of containers. Their file systems may be slow, or
//! hang forever in a system call that no signal ends.
//!
//! ```text
//!            a place of 64              after SLOW: its place is free again            at its limit
//! admitted ───────────────▶ working ────────────────────────────────────────▶ stuck ──────────────▶ given up
//!  waits while a file system of     counted against all its           counted against the       the thread stays,
//!  counted
//!  its paths has SOURCE_MAX         file systems                      one that it hangs at
//!  threads at work or stuck
//! ```
//! So a file system that hangs costs a bounded number of threads, and nobody waits for it who does not use it.

use std::{
    collections::{HashMap, HashSet},
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
/// Threads that may work in one file system, those that are stuck included, before no other is admitted to it.
const SOURCE_MAX: usize = 8;
/// Threads that may be stuck in all file systems together.
const ALL_STUCK_MAX: usize = 192;

/// See the module.
#[derive(Clone)]
pub(crate) struct HostFiles(Arc<Shared>);

struct Shared {
    places: Arc<Semaphore>,
    threads: Mutex<Threads>,
    /// Some thread has come to its end, or is counted against fewer file systems.
    freed: Notify,
}

/// The threads that were admitted and have not come to their end.
#[derive(Default)]
struct Threads {
    working: Vec<Arc<Progress>>,
    /// How many are stuck, by file system.
    stuck: HashMap<String, usize>,
}

impl Default for HostFiles {
    fn default() -> Self {
        let (threads, freed) = (Mutex::default(), Notify::new());
        Self(Arc::new(Shared { places: Arc::new(Semaphore::new(PLACES)), threads, freed }))
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

impl Threads {
    /// The first of these paths whose file system admits no more work: as many threads as may be are in it, or
    /// `most_stuck` are stuck. `table` is `None` where none has been read, which is done only when it matters.
    fn closed<'a>(&self, paths: &'a [PathBuf], most_stuck: usize, table: Option<&MountTable>) -> Admission<'a> {
        if self.stuck.is_empty() && self.working.len() < SOURCE_MAX {
            return Admission::Open;
        }
        let Some(table) = table else { return Admission::NeedsTable };
        if self.stuck.values().sum::<usize>() >= ALL_STUCK_MAX {
            return paths.first().map_or(Admission::Open, |path| Admission::Closed(path));
        }
        let busy: Vec<HashSet<String>> = self
            .working
            .iter()
            .map(|progress| progress.paths.iter().map(|path| table.source(path)).collect())
            .collect();
        let is_closed = |path: &&PathBuf| {
            let source = table.source(path);
            let stuck = self.stuck.get(&source).copied().unwrap_or_default();
            let working = busy.iter().filter(|sources| sources.contains(&source)).count();
            stuck >= most_stuck || stuck + working >= SOURCE_MAX
        };
        paths.iter().find(is_closed).map_or(Admission::Open, |path| Admission::Closed(path))
    }

    /// Whether it was counted as working.
    fn remove(&mut self, progress: &Arc<Progress>) -> bool {
        let place = self.working.iter().position(|working| Arc::ptr_eq(working, progress));
        place.map(|place| self.working.swap_remove(place)).is_some()
    }
}

/// Whether work on some paths may begin.
enum Admission<'a> {
    Open,
    Closed(&'a Path),
    NeedsTable,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Threads> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first of these paths whose file system admits no more work; where all do, the work is counted.
    fn admit(&self, paths: &[PathBuf], most_stuck: usize, begin: Option<&Arc<Progress>>) -> Result<(), PathBuf> {
        let mut table = None;
        loop {
            let mut threads = self.lock();
            match threads.closed(paths, most_stuck, table.as_ref()) {
                Admission::Closed(path) => return Err(path.to_owned()),
                Admission::Open => {
                    threads.working.extend(begin.cloned());
                    return Ok(());
                }
                Admission::NeedsTable => {}
            }
            drop(threads);
            table = Some(offload::here(MountTable::read));
        }
    }
}

impl Stuck {
    /// `None`: it has come to its end.
    fn new(shared: &Arc<Shared>, progress: &Arc<Progress>) -> Option<Self> {
        let source = offload::here(MountTable::read).source(progress.path());
        let mut threads = shared.lock();
        if !threads.remove(progress) {
            return None;
        }
        *threads.stuck.entry(source.clone()).or_default() += 1;
        drop(threads);
        shared.freed.notify_waiters();
        Some(Self { shared: Arc::clone(shared), source })
    }
}

impl Drop for Stuck {
    fn drop(&mut self) {
        let mut threads = self.shared.lock();
        if let Some(count) = threads.stuck.get_mut(&self.source) {
            *count -= 1;
            if *count == 0 {
                threads.stuck.remove(&self.source);
            }
        }
        drop(threads);
        self.shared.freed.notify_waiters();
    }
}

/// Ends the count of a thread, also when its work panics.
struct End {
    shared: Arc<Shared>,
    progress: Arc<Progress>,
}

impl Drop for End {
    fn drop(&mut self) {
        *self.progress.lock() = Hold { done: true, ..Hold::default() };
        self.shared.lock().remove(&self.progress);
        self.shared.freed.notify_waiters();
    }
}

impl HostFiles {
    /// Runs work on these paths on a thread that may block, for at most `limit`, with the time it waits to be admitted.
    /// A relative path is no path but whose files they are: their file system is held to be its own.
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
        let progress = self.admitted(paths, until, limit).await?;
        self.run(progress, until, limit, work).await
    }

    /// The same, where work on a file system in which any thread is stuck fails at once.
    pub(crate) async fn try_visit<T: Send + 'static>(
        &self,
        paths: Vec<PathBuf>,
        limit: Duration,
        work: impl FnOnce(&Progress) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        self.0.admit(&paths, 1, None).map_err(|path| hangs(&path, limit))?;
        self.visit(paths, limit, work).await
    }

    /// Waits until all paths are admitted and there is a place. Who waits for a file system holds no place, and who
    /// waited for a place looks at its file systems again.
    async fn admitted(&self, paths: Vec<PathBuf>, until: Instant, limit: Duration) -> Result<Arc<Progress>, Error> {
        let shared = &self.0;
        let progress = Arc::new(Progress { paths, at: AtomicUsize::new(0), hold: Mutex::default() });
        loop {
            let freed = shared.freed.notified();
            tokio::pin!(freed);
            // Registered before the look, so that nothing is missed in between.
            freed.as_mut().enable();
            let closed = match shared.admit(&progress.paths, SOURCE_MAX, None) {
                Err(path) => path,
                Ok(()) => {
                    let place = timeout_at(until, Arc::clone(&shared.places).acquire_owned()).await;
                    let place =
                        place.map_err(|_| Error::unavailable("too many other containers open their volumes"))?;
                    progress.lock().place = Some(place.map_err(|_| Error::unavailable("the daemon is ending"))?);
                    match shared.admit(&progress.paths, SOURCE_MAX, Some(&progress)) {
                        Ok(()) => return Ok(progress),
                        Err(path) => path,
                    }
                }
            };
            progress.lock().place = None;
            if timeout_at(until, freed).await.is_err() {
                return Err(hangs(&closed, limit));
            }
        }
    }

    async fn run<T: Send + 'static>(
        &self,
        progress: Arc<Progress>,
        until: Instant,
        limit: Duration,
        work: impl FnOnce(&Progress) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let shared = &self.0;
        let (done, mut outcome) = oneshot::channel();
        let (end, span) =
            (End { shared: Arc::clone(shared), progress: Arc::clone(&progress) }, tracing::Span::current());
        offload::blocking(move || {
            let end = end;
            // Its caller may have given up.
            let _ = done.send(span.in_scope(|| work(&end.progress)));
        });
        let bug = |_| Error::internal("a bug: work on the node's files panicked");
        if let Ok(outcome) = timeout(SLOW, &mut outcome).await {
            return outcome.map_err(bug)?;
        }
        if let Some(stuck) = Stuck::new(shared, &progress) {
            progress.become_stuck(stuck);
        }
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
            offload::here(MountTable::read).point(path).display()
        ),
        false => format!("{}: its files give no answer within {seconds} s", path.display()),
    };
    Error::new(ErrorKind::DeadlineExceeded, message)
}

#[cfg(test)]
mod tests;
