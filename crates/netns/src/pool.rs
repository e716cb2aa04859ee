//! Warm namespaces: made ahead, in the background, so that a pod does not wait for the kernel.

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
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
    refiller: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    size: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
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
        let state = Mutex::new(State { ready: Vec::with_capacity(size), closed: false });
        let shared = Arc::new(Shared { size, state, changed: Condvar::new() });
        let refiller = (size > 0).then(|| {
            let shared = Arc::clone(&shared);
            std::thread::Builder::new().name("netns-pool".into()).spawn(move || refill(&shared)).ok()
        });
        // Without its thread the pool stays empty, and `take` creates.
        Self { shared, refiller: refiller.flatten() }
    }

    /// A namespace of its own, with `lo` up: from the pool in under 1 µs, or made now.
    ///
    /// # Errors
    /// As [`Namespace::create`].
    pub fn take(&self) -> Result<Namespace, Error> {
        let warm = self.shared.lock().ready.pop();
        self.shared.changed.notify_all();
        warm.map_or_else(Namespace::create, Ok)
    }

    /// How many are ready.
    #[must_use]
    pub fn ready(&self) -> usize {
        self.shared.lock().ready.len()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.refiller.take() {
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
                let full = state.ready.len() >= shared.size;
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
                shared.lock().ready.push(namespace);
            }
            // The same failure meets `take`, which tells it.
            Err(_) => pause = RETRY,
        }
    }
}
