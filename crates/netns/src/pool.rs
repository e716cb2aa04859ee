//! Warm namespaces: made ahead, in the background, so that a pod does not wait for the kernel.

use std::{
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use crate::{Error, Namespace, teardown};

/// After a failure to create (limits, memory) the pool tries again so much later.
const RETRY: Duration = Duration::from_secs(5);

/// Up to `size` namespaces, each given out once and never taken back: what a container leaves in one is not known.
///
/// A namespace costs about 220 KiB of kernel memory. The refilling thread ends with the pool.
#[derive(Debug)]
pub struct Pool {
    shared: Arc<Shared>,
    refiller: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    warm: AtomicU64,
    late: AtomicU64,
    made: AtomicU64,
    failed: AtomicU64,
}

/// A pool at one moment, and what it did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolFigures {
    /// As many as it keeps.
    pub size: u64,
    /// As many as wait to be taken.
    pub ready: u64,
    /// Taken that waited.
    pub warm: u64,
    /// Taken while none waited: made on the spot.
    pub late: u64,
    /// Made ahead.
    pub made: u64,
    /// Attempts to make one ahead that failed.
    pub failed: u64,
}

#[derive(Debug, Default)]
struct State {
    size: usize,
    ready: Vec<Namespace>,
    closed: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pool {
    /// Begins to fill itself in the background. Size zero: a pool that only creates on demand.
    #[must_use]
    pub fn new(size: usize) -> Self {
        let pool = Self { shared: Arc::default(), refiller: Mutex::default() };
        pool.resize(size);
        pool
    }

    /// Another size from now on: fills itself up to it in the background; what is ready beyond it goes at once.
    pub fn resize(&self, size: usize) {
        let surplus = {
            let mut state = self.shared.lock();
            state.size = size;
            let keep = state.ready.len().min(size);
            state.ready.split_off(keep)
        };
        drop(surplus);
        let mut refiller = self.refiller.lock().unwrap_or_else(PoisonError::into_inner);
        if size > 0 && refiller.is_none() {
            let shared = Arc::clone(&self.shared);
            // Without its thread the pool stays empty, and `take` creates.
            *refiller = std::thread::Builder::new().name("netns-pool".into()).spawn(move || refill(&shared)).ok();
        }
        self.shared.changed.notify_all();
    }

    /// A namespace of its own, with `lo` up: from the pool in under 1 µs, or made now.
    ///
    /// # Errors
    /// As [`Namespace::create`].
    pub fn take(&self) -> Result<Namespace, Error> {
        let warm = self.shared.lock().ready.pop();
        self.shared.changed.notify_all();
        let taken = if warm.is_some() { &self.shared.warm } else { &self.shared.late };
        taken.fetch_add(1, Ordering::Relaxed);
        warm.map_or_else(Namespace::create, Ok)
    }

    /// How many are ready.
    #[must_use]
    pub fn ready(&self) -> usize {
        self.shared.lock().ready.len()
    }

    /// What it did.
    #[must_use]
    pub fn figures(&self) -> PoolFigures {
        let shared = &self.shared;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (size, ready) = {
            let state = shared.lock();
            (state.size, state.ready.len())
        };
        PoolFigures {
            size: size as u64,
            ready: ready as u64,
            warm: read(&shared.warm),
            late: read(&shared.late),
            made: read(&shared.made),
            failed: read(&shared.failed),
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.refiller.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            // It neither panics nor holds anything: nothing to tell.
            let _ = thread.join();
        }
    }
}

fn refill(shared: &Shared) {
    let mut pause = Duration::ZERO;
    loop {
        {
            let mut state = shared.lock();
            let until = Instant::now() + pause.max(teardown::remaining(Instant::now()));
            loop {
                let left = until.saturating_duration_since(Instant::now());
                if state.closed {
                    return;
                }
                let full = state.ready.len() >= state.size;
                if !full && left.is_zero() {
                    break;
                }
                state = if full {
                    shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
                } else {
                    shared.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
                };
            }
        }
        match Namespace::create() {
            Ok(namespace) => {
                pause = Duration::ZERO;
                shared.made.fetch_add(1, Ordering::Relaxed);
                let mut state = shared.lock();
                // It may have been made smaller meanwhile.
                if state.ready.len() < state.size {
                    state.ready.push(namespace);
                }
            }
            // The same failure meets `take`, which tells it.
            Err(_) => {
                pause = RETRY;
                shared.failed.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}
