//! Calls on the pipes of a container that have not returned.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use crate::Error;

/// A call that has not returned after this time is blocked: others return within microseconds.
pub(crate) const BLOCKED: Duration = Duration::from_millis(100);
/// Number of blocked calls with which a container is refused further exec sessions.
pub(crate) const BLOCKED_MAX: usize = 8;

/// Calls on the pipes of one container that have not returned.
#[derive(Default)]
pub(crate) struct PipeCalls(Mutex<CallsInProgress>);

#[derive(Default)]
struct CallsInProgress {
    last_number: u64,
    started: Vec<(u64, Instant)>,
}

impl PipeCalls {
    fn lock(&self) -> MutexGuard<'_, CallsInProgress> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a call while it runs.
    pub(crate) fn during<T>(&self, call: impl FnOnce() -> T) -> T {
        /// Ends the accounting of the call, also if the call panics.
        struct CallGuard<'a>(&'a PipeCalls, u64);
        impl Drop for CallGuard<'_> {
            fn drop(&mut self) {
                self.0.lock().started.retain(|(number, _)| *number != self.1);
            }
        }
        let number = {
            let mut calls = self.lock();
            calls.last_number += 1;
            let number = calls.last_number;
            calls.started.push((number, Instant::now()));
            number
        };
        let _guard = CallGuard(self, number);
        call()
    }

    /// Fails if the container has too many blocked calls to be given further pipes.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let blocked = self.lock().started.iter().filter(|(_, start)| start.elapsed() >= BLOCKED).count();
        if blocked < BLOCKED_MAX {
            return Ok(());
        }
        Err(Error::state(format!(
            "the pipes of {blocked} earlier exec sessions are held inside the kernel by a process of the container \
             (splice(2)); kill it or stop the container"
        )))
    }
}
