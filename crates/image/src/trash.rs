//! Removal in the background: a path is renamed to a trash directory at once, and deleted by a thread.

use std::{
    collections::VecDeque,
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use rustix::io::Errno;
use telemetry::Gauge;

use crate::{Error, error::failed_to, unpack::remove_path};

/// First pause before a failed deletion is retried. It doubles with each further failure.
const RETRY: Duration = Duration::from_secs(1);
/// Longest pause before a failed deletion is retried.
const RETRY_MAX: Duration = Duration::from_secs(600);
/// How long closing waits for the running deletion.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// The trash directory and its thread. The thread also deletes what a crash left there, so that nothing in it delays or
/// fails the opening of a store.
pub(crate) struct Trash {
    dir: PathBuf,
    counter: AtomicU64,
    queue: Arc<Queue>,
}

struct Queue {
    state: Mutex<State>,
    changed: Condvar,
    /// Number of paths that are not deleted yet.
    waiting: Gauge,
}

#[derive(Default)]
struct State {
    paths: VecDeque<PathBuf>,
    /// Paths that could not be deleted.
    failed: Vec<PathBuf>,
    /// Failed rounds since everything was deleted.
    failures: u32,
    retry_at: Option<Instant>,
    closed: bool,
    /// Whether the thread deletes nothing any longer.
    ended: bool,
}

impl State {
    fn retry_later(&mut self, path: PathBuf, cause: Errno) {
        let pause = RETRY.saturating_mul(2_u32.saturating_pow(self.failures)).min(RETRY_MAX);
        tracing::warn!("remove {}: {cause}; retrying in {} s", path.display(), pause.as_secs());
        self.failed.push(path);
        // The pause grows once per round, however many paths fail in it.
        if self.retry_at.is_none() {
            self.retry_at = Some(Instant::now() + pause);
            self.failures = self.failures.saturating_add(1);
        }
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, path: PathBuf) {
        self.waiting.add(1);
        self.lock().paths.push_back(path);
        self.changed.notify_all();
    }

    /// Waits for the next path to delete. Returns `None` once the store is closed: the next opening deletes what is
    /// left.
    fn next(&self) -> Option<PathBuf> {
        let mut state = self.lock();
        loop {
            if state.closed {
                return None;
            }
            if let Some(path) = state.paths.pop_front() {
                return Some(path);
            }
            state = match state.retry_at {
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(at) if at <= Instant::now() => {
                    state.retry_at = None;
                    let failed = std::mem::take(&mut state.failed);
                    state.paths.extend(failed);
                    state
                }
                Some(at) => {
                    let remaining = at.saturating_duration_since(Instant::now());
                    self.changed.wait_timeout(state, remaining).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    fn run(&self) {
        while let Some(path) = self.next() {
            match remove_path(&path) {
                Ok(()) => {
                    self.waiting.add(-1);
                    let mut state = self.lock();
                    if state.failed.is_empty() && state.paths.is_empty() {
                        state.failures = 0;
                    }
                }
                Err(cause) => self.lock().retry_later(path, cause),
            }
        }
        self.lock().ended = true;
        self.changed.notify_all();
    }
}

impl Trash {
    /// Opens the trash in `dir`, which must be on the same file system as what will be removed. Everything in it is
    /// deleted.
    pub(crate) fn open(dir: &Path) -> Result<Self, Error> {
        let leftovers = fs::read_dir(dir).and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect());
        let leftovers: VecDeque<PathBuf> = leftovers.map_err(failed_to("list", dir))?;
        let queue = Arc::new(Queue {
            state: Mutex::new(State { paths: leftovers, ..State::default() }),
            changed: Condvar::new(),
            waiting: Gauge::new(),
        });
        queue.waiting.add(i64::try_from(queue.lock().paths.len()).unwrap_or(i64::MAX));
        let worker = Arc::clone(&queue);
        let thread = thread::Builder::new().name("image-trash".into()).spawn(move || worker.run());
        thread.map_err(failed_to("start the thread for", dir))?;
        Ok(Self { dir: dir.to_owned(), counter: AtomicU64::new(0), queue })
    }

    /// Renames `path` to the trash. Succeeds if it does not exist.
    pub(crate) fn remove(&self, path: &Path) -> Result<(), Error> {
        loop {
            let target = self.dir.join(format!("trash-{}", self.counter.fetch_add(1, Ordering::Relaxed)));
            // A leftover may have this name.
            let flags = rustix::fs::RenameFlags::NOREPLACE;
            match rustix::fs::renameat_with(rustix::fs::CWD, path, rustix::fs::CWD, &target, flags) {
                Ok(()) => {
                    self.queue.push(target);
                    return Ok(());
                }
                Err(Errno::EXIST) => {}
                Err(Errno::NOENT) => return Ok(()),
                Err(cause) => return Err(failed_to("remove", path)(cause)),
            }
        }
    }

    /// Queues a path that is not visible anymore for deletion. It may not exist. Does not block.
    pub(crate) fn delete_later(&self, path: PathBuf) {
        self.queue.push(path);
    }

    /// Returns the number of paths that are not deleted yet.
    pub(crate) fn waiting(&self) -> u64 {
        u64::try_from(self.queue.waiting.get()).unwrap_or(0)
    }
}

impl Drop for Trash {
    fn drop(&mut self) {
        let mut state = self.queue.lock();
        state.closed = true;
        self.queue.changed.notify_all();
        let deadline = Instant::now() + CLOSE_TIMEOUT;
        while !state.ended && Instant::now() < deadline {
            let remaining = deadline.saturating_duration_since(Instant::now());
            state = self.queue.changed.wait_timeout(state, remaining).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(paths: VecDeque<PathBuf>) -> Arc<Queue> {
        let state = State { paths, ..State::default() };
        Arc::new(Queue { state: Mutex::new(state), changed: Condvar::new(), waiting: Gauge::new() })
    }

    #[test]
    fn a_closed_store_deletes_nothing_more() {
        let queue = queue(VecDeque::from(["a".into(), "b".into()]));
        assert_eq!(queue.next(), Some("a".into()));
        queue.lock().closed = true;
        assert_eq!(queue.next(), None);
    }

    #[test]
    fn closing_waits_a_limited_time_for_a_deletion_that_hangs() {
        // There is no thread that would end, as if it waited for the disk.
        let trash = Trash { dir: PathBuf::new(), counter: AtomicU64::new(0), queue: queue(VecDeque::new()) };
        let start = Instant::now();
        drop(trash);
        assert!(start.elapsed() < 5 * CLOSE_TIMEOUT);
    }
}
