//! A pool of namespaces that are created in advance in the background, so that pods do not wait for the kernel.

use std::{
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use crate::{Error, Namespace, teardown};

/// Delay after a failure to create a namespace (limits, memory).
const RETRY: Duration = Duration::from_secs(5);

/// Keeps up to `size` namespaces ready. Each is handed out once and never returned, because the state that a container
/// leaves in it is unknown.
///
/// A namespace takes about 220 KiB of kernel memory. The thread that fills the pool ends with the pool.
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
    cold: AtomicU64,
    created: AtomicU64,
    failed: AtomicU64,
}

/// The state of a pool, and its counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolMetrics {
    /// Number of namespaces that the pool keeps ready.
    pub size: u64,
    /// Number of namespaces that are ready.
    pub ready: u64,
    /// Number of namespaces that were handed out from the pool.
    pub warm: u64,
    /// Number of namespaces that were created on demand because none was ready.
    pub cold: u64,
    /// Number of namespaces that were created in advance.
    pub created: u64,
    /// Number of failed attempts to create a namespace in advance.
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
    /// Creates a pool, which is filled in the background. With size zero, namespaces are only created on demand.
    #[must_use]
    pub fn new(size: usize) -> Self {
        let pool = Self { shared: Arc::default(), refiller: Mutex::default() };
        pool.resize(size);
        pool
    }

    /// Changes the size. The pool is filled in the background; surplus namespaces are dropped at once.
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
            // If the thread cannot be started, the pool stays empty, and `take` creates namespaces.
            *refiller = std::thread::Builder::new().name("netns-pool".into()).spawn(move || refill(&shared)).ok();
        }
        self.shared.changed.notify_all();
    }

    /// Returns a namespace with `lo` up: from the pool in less than 1 µs, or a new one.
    ///
    /// # Errors
    /// See [`Namespace::create`].
    pub fn take(&self) -> Result<Namespace, Error> {
        let warm = self.shared.lock().ready.pop();
        self.shared.changed.notify_all();
        let taken = if warm.is_some() { &self.shared.warm } else { &self.shared.cold };
        taken.fetch_add(1, Ordering::Relaxed);
        warm.map_or_else(Namespace::create, Ok)
    }

    /// Returns the number of namespaces that are ready.
    #[must_use]
    pub fn ready(&self) -> usize {
        self.shared.lock().ready.len()
    }

    /// Returns the state and the counters of the pool.
    #[must_use]
    pub fn metrics(&self) -> PoolMetrics {
        let shared = &self.shared;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (size, ready) = {
            let state = shared.lock();
            (state.size, state.ready.len())
        };
        PoolMetrics {
            size: size as u64,
            ready: ready as u64,
            warm: read(&shared.warm),
            cold: read(&shared.cold),
            created: read(&shared.created),
            failed: read(&shared.failed),
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.refiller.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            // The thread does not panic, so the result contains nothing.
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
                let remaining = until.saturating_duration_since(Instant::now());
                if state.closed {
                    return;
                }
                let full = state.ready.len() >= state.size;
                if !full && remaining.is_zero() {
                    break;
                }
                state = if full {
                    shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
                } else {
                    shared.changed.wait_timeout(state, remaining).unwrap_or_else(PoisonError::into_inner).0
                };
            }
        }
        match Namespace::create() {
            Ok(namespace) => {
                pause = Duration::ZERO;
                shared.created.fetch_add(1, Ordering::Relaxed);
                let mut state = shared.lock();
                // The pool may have been made smaller in the meantime.
                if state.ready.len() < state.size {
                    state.ready.push(namespace);
                }
            }
            // `take` will run into the same error and return it.
            Err(_) => {
                pause = RETRY;
                shared.failed.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}
