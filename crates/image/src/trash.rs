//! Removal that no one waits for: renamed out of sight at once, deleted by one thread.

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

use crate::{Error, error::at, unpack::remove_path};

/// Until what could not be removed is tried again: doubled at each further failure.
const RETRY: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(600);
/// How long a closing waits for the removal that runs.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// The thread, and the directory where things are kept until they are deleted. What a crash left there is deleted by
/// the thread, too: nothing in it delays or fails the opening of a store.
pub(crate) struct Trash {
    dir: PathBuf,
    counter: AtomicU64,
    queue: Arc<Queue>,
}

struct Queue {
    state: Mutex<State>,
    changed: Condvar,
    /// Not deleted yet.
    waiting: Gauge,
}

#[derive(Default)]
struct State {
    paths: VecDeque<PathBuf>,
    /// Could not be removed.
    failed: Vec<PathBuf>,
    /// Since all was removed.
    failures: u32,
    retry_at: Option<Instant>,
    closed: bool,
    /// The thread removes nothing any longer.
    ended: bool,
}

impl State {
    fn keep(&mut self, path: PathBuf, cause: Errno) {
        let pause = RETRY.saturating_mul(2_u32.saturating_pow(self.failures)).min(RETRY_MAX);
        tracing::warn!("remove {}: {cause}; kept, tried again in {} s", path.display(), pause.as_secs());
        self.failed.push(path);
        // One failure is one step, however many paths fail in one round.
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

    /// The next path to remove. `None` once the store is closed: the next opening removes what is left.
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
                    let left = at.saturating_duration_since(Instant::now());
                    self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
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
                Err(cause) => self.lock().keep(path, cause),
            }
        }
        self.lock().ended = true;
        self.changed.notify_all();
    }
}

impl Trash {
    /// `dir` is on the same file system as what will be removed. Everything that is in it already is removed.
    pub(crate) fn open(dir: &Path) -> Result<Self, Error> {
        let leftovers = fs::read_dir(dir).and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect());
        let leftovers: VecDeque<PathBuf> = leftovers.map_err(at("list", dir))?;
        let queue = Arc::new(Queue {
            state: Mutex::new(State { paths: leftovers, ..State::default() }),
            changed: Condvar::new(),
            waiting: Gauge::new(),
        });
        queue.waiting.add(i64::try_from(queue.lock().paths.len()).unwrap_or(i64::MAX));
        let worker = Arc::clone(&queue);
        let thread = thread::Builder::new().name("image-trash".into()).spawn(move || worker.run());
        thread.map_err(at("start the thread for", dir))?;
        Ok(Self { dir: dir.to_owned(), counter: AtomicU64::new(0), queue })
    }

    /// Takes `path` away at once. A missing one is fine.
    pub(crate) fn take(&self, path: &Path) -> Result<(), Error> {
        loop {
            let target = self.dir.join(format!("trash-{}", self.counter.fetch_add(1, Ordering::Relaxed)));
            // The name may be a leftover's.
            let flags = rustix::fs::RenameFlags::NOREPLACE;
            match rustix::fs::renameat_with(rustix::fs::CWD, path, rustix::fs::CWD, &target, flags) {
                Ok(()) => {
                    self.queue.push(target);
                    return Ok(());
                }
                Err(Errno::EXIST) => {}
                Err(Errno::NOENT) => return Ok(()),
                Err(cause) => return Err(at("remove", path)(cause)),
            }
        }
    }

    /// Deletes what is out of sight already, if it is there. Does not block.
    pub(crate) fn leave(&self, path: PathBuf) {
        self.queue.push(path);
    }

    /// How many were taken and are not deleted yet.
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
            let left = deadline.saturating_duration_since(Instant::now());
            state = self.queue.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
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
    fn a_closed_store_removes_nothing_more() {
        let queue = queue(VecDeque::from(["a".into(), "b".into()]));
        assert_eq!(queue.next(), Some("a".into()));
        queue.lock().closed = true;
        assert_eq!(queue.next(), None);
    }

    #[test]
    fn closing_waits_for_a_removal_that_hangs_for_a_bounded_time() {
        // Its thread never ends: it waits for the disk.
        let trash = Trash { dir: PathBuf::new(), counter: AtomicU64::new(0), queue: queue(VecDeque::new()) };
        let began = Instant::now();
        drop(trash);
        assert!(began.elapsed() < 5 * CLOSE_TIMEOUT);
    }
}
