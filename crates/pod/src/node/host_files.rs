//! Work on files of the node that others own: volumes and logs of containers. Their file systems may be slow, or hang
//! forever in a system call that no signal interrupts.
//!
//! ```text
//!          one of 64 permits           after SLOW: the permit is released              at the time limit
//! admitted ────────────────▶ working ────────────────────────────────────▶ stuck ─────────────────▶ given up
//!  waits while a file system   counted against all                          counted against the     the thread
//!  of its paths has SOURCE_MAX its file systems                             file system that it     stays, counted
//!  threads working or stuck                                                 hangs in
//! ```
//! So a file system that hangs occupies a bounded number of threads, and only work on that file system waits for it.

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

use super::MountTable;
use crate::{Error, ErrorKind};

/// Number of threads that work at the same time, out of about 500 that may block.
const PERMITS: usize = 64;
/// Running time after which work releases its permit.
const SLOW: Duration = Duration::from_millis(500);
/// Number of threads that may work in one file system, stuck ones included. Beyond that no work is admitted to it.
const SOURCE_MAX: usize = 8;
/// Number of threads that may be stuck in all file systems together.
const ALL_STUCK_MAX: usize = 192;

/// Executor of work on files of the node.
#[derive(Clone)]
pub(crate) struct HostFiles(Arc<Shared>);

struct Shared {
    permits: Arc<Semaphore>,
    threads: Mutex<Threads>,
    /// Notified when a thread ends, or is counted against fewer file systems.
    freed: Notify,
}

/// The threads that were admitted and have not ended.
#[derive(Default)]
struct Threads {
    working: Vec<Arc<Progress>>,
    /// Number of stuck threads, by file system.
    stuck: HashMap<String, usize>,
}

impl Default for HostFiles {
    fn default() -> Self {
        let (threads, freed) = (Mutex::default(), Notify::new());
        Self(Arc::new(Shared { permits: Arc::new(Semaphore::new(PERMITS)), threads, freed }))
    }
}

/// Progress of a piece of work: shows which path it hangs at.
pub(crate) struct Progress {
    paths: Vec<PathBuf>,
    at: AtomicUsize,
    thread: Mutex<ThreadState>,
}

/// State of the thread that does the work, and what it occupies.
#[derive(Default)]
struct ThreadState {
    permit: Option<OwnedSemaphorePermit>,
    stuck: Option<StuckThread>,
    given_up: bool,
    done: bool,
}

/// Guard of a thread that is counted as stuck.
struct StuckThread {
    shared: Arc<Shared>,
    source: String,
}

impl Progress {
    fn lock(&self) -> MutexGuard<'_, ThreadState> {
        self.thread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that the work continues with the path of this index. Must be called before the path is accessed.
    ///
    /// # Errors
    /// The caller of the work has given up.
    pub(crate) fn at(&self, index: usize) -> Result<(), Error> {
        self.at.store(index, Ordering::Release);
        match self.lock().given_up {
            true => Err(Error::unavailable("the operation that needed it has timed out")),
            false => Ok(()),
        }
    }

    fn path(&self) -> &Path {
        self.paths.get(self.at.load(Ordering::Acquire)).map_or(Path::new("/"), PathBuf::as_path)
    }
}

impl Threads {
    /// Returns the first of these paths whose file system admits no more work, because [`SOURCE_MAX`] threads are in it
    /// or `stuck_max` are stuck. `table` is `None` if the mount table was not read: that is done only when it is
    /// needed.
    fn admission<'a>(&self, paths: &'a [PathBuf], stuck_max: usize, table: Option<&MountTable>) -> Admission<'a> {
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
            stuck >= stuck_max || stuck + working >= SOURCE_MAX
        };
        paths.iter().find(is_closed).map_or(Admission::Open, |path| Admission::Closed(path))
    }

    /// Removes a working thread. Reports whether it was counted as working.
    fn remove(&mut self, progress: &Arc<Progress>) -> bool {
        let position = self.working.iter().position(|working| Arc::ptr_eq(working, progress));
        position.map(|position| self.working.swap_remove(position)).is_some()
    }
}

/// Whether work on some paths may start.
enum Admission<'a> {
    Open,
    Closed(&'a Path),
    NeedsTable,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Threads> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the first of these paths whose file system admits no more work. If all admit it, counts `begin` as
    /// working.
    fn admit(&self, paths: &[PathBuf], stuck_max: usize, begin: Option<&Arc<Progress>>) -> Result<(), PathBuf> {
        let mut table = None;
        loop {
            let mut threads = self.lock();
            match threads.admission(paths, stuck_max, table.as_ref()) {
                Admission::Closed(path) => return Err(path.to_owned()),
                Admission::Open => {
                    threads.working.extend(begin.cloned());
                    return Ok(());
                }
                Admission::NeedsTable => {}
            }
            drop(threads);
            table = Some(offload::in_place(MountTable::read));
        }
    }
}

impl StuckThread {
    /// Counts the thread as stuck in the file system of its current path; `None` if it has ended.
    fn new(shared: &Arc<Shared>, progress: &Arc<Progress>) -> Option<Self> {
        let source = offload::in_place(MountTable::read).source(progress.path());
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

impl Drop for StuckThread {
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

/// Guard of a thread: ends its accounting, also when the work panics.
struct CompletionGuard {
    shared: Arc<Shared>,
    progress: Arc<Progress>,
}

impl Drop for CompletionGuard {
    fn drop(&mut self) {
        *self.progress.lock() = ThreadState { done: true, ..ThreadState::default() };
        self.shared.lock().remove(&self.progress);
        self.shared.freed.notify_waiters();
    }
}

impl HostFiles {
    /// Runs work on these paths on a thread that may block. `limit` bounds the total time, including the wait for
    /// admission. A relative path is not a path but names the owner of the files, which are treated as a file system of
    /// their own.
    ///
    /// # Errors
    /// `DeadlineExceeded` with the path that the work hangs at, or the error of the work.
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

    /// Like [`Self::visit`], but fails at once if any thread is stuck in one of the file systems.
    pub(crate) async fn try_visit<T: Send + 'static>(
        &self,
        paths: Vec<PathBuf>,
        limit: Duration,
        work: impl FnOnce(&Progress) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        self.0.admit(&paths, 1, None).map_err(|path| timed_out(&path, limit))?;
        self.visit(paths, limit, work).await
    }

    /// Waits until all paths are admitted and a permit is available. While it waits for a file system it holds no
    /// permit; after it waited for a permit it checks the file systems again.
    async fn admitted(&self, paths: Vec<PathBuf>, until: Instant, limit: Duration) -> Result<Arc<Progress>, Error> {
        let shared = &self.0;
        let progress = Arc::new(Progress { paths, at: AtomicUsize::new(0), thread: Mutex::default() });
        loop {
            let freed = shared.freed.notified();
            tokio::pin!(freed);
            // Registered before the check, so that no notification is missed in between.
            freed.as_mut().enable();
            let closed = match shared.admit(&progress.paths, SOURCE_MAX, None) {
                Err(path) => path,
                Ok(()) => {
                    let permit = timeout_at(until, Arc::clone(&shared.permits).acquire_owned()).await;
                    let permit =
                        permit.map_err(|_| Error::unavailable("too many other containers open their volumes"))?;
                    let permit = permit.map_err(|_| Error::unavailable("the daemon is shutting down"))?;
                    progress.lock().permit = Some(permit);
                    match shared.admit(&progress.paths, SOURCE_MAX, Some(&progress)) {
                        Ok(()) => return Ok(progress),
                        Err(path) => path,
                    }
                }
            };
            progress.lock().permit = None;
            if timeout_at(until, freed).await.is_err() {
                return Err(timed_out(&closed, limit));
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
        let guard = CompletionGuard { shared: Arc::clone(shared), progress: Arc::clone(&progress) };
        let span = tracing::Span::current();
        offload::blocking(move || {
            let guard = guard;
            // The caller may have given up.
            let _ = done.send(span.in_scope(|| work(&guard.progress)));
        });
        let bug = |_| Error::internal("a bug: work on the node's files panicked");
        if let Ok(outcome) = timeout(SLOW, &mut outcome).await {
            return outcome.map_err(bug)?;
        }
        if let Some(stuck) = StuckThread::new(shared, &progress) {
            progress.become_stuck(stuck);
        }
        match timeout_at(until, outcome).await {
            Ok(outcome) => outcome.map_err(bug)?,
            Err(_) => {
                progress.give_up();
                Err(timed_out(progress.path(), limit))
            }
        }
    }
}

impl Progress {
    fn become_stuck(&self, stuck: StuckThread) {
        let mut thread = self.lock();
        if !thread.done {
            drop(thread.permit.take());
            thread.stuck = Some(stuck);
        }
    }

    fn give_up(&self) {
        self.lock().given_up = true;
    }
}

fn timed_out(path: &Path, limit: Duration) -> Error {
    let seconds = limit.as_secs_f32();
    let message = match path.is_absolute() {
        true => format!(
            "{}: no answer from the file system on {} within {seconds} s; check its device or server",
            path.display(),
            offload::in_place(MountTable::read).point(path).display()
        ),
        false => format!("{}: no answer from its file system within {seconds} s", path.display()),
    };
    Error::new(ErrorKind::DeadlineExceeded, message)
}

#[cfg(test)]
mod tests;
