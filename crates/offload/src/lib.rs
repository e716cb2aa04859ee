//! Runs code that may block without blocking the workers of the async runtime.
//!
//! When a worker of tokio blocks, the task that it woke last is stuck: other workers cannot take it, and it may serve
//! the connection on which all requests of a client arrive. When all workers block, no request is served at all. Files
//! of the state directory, cgroups and `/proc` do block: for memory, for locks of the kernel, for other processes. So
//! background tasks are spawned with [`spawn`], and requests make such calls with [`in_place`] or on separate threads.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod watch;

use std::{
    cell::Cell,
    future::poll_fn,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    pin::pin,
};

use tokio::{
    runtime::{Handle, RuntimeFlavor},
    task::{JoinHandle, block_in_place, spawn_blocking},
};
use watch::Blocking;

thread_local! {
    /// True if this thread has no other tasks, or they have been handed over to another thread.
    static MAY_BLOCK: Cell<bool> = const { Cell::new(false) };
}

/// Spawns a task that may block whenever it is polled. The worker's other tasks run on another thread during that time.
///
/// # Panics
/// Panics outside of a tokio runtime, as [`tokio::spawn`] does.
pub fn spawn<T: Send + 'static>(task: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    tokio::spawn(async move {
        let mut task = pin!(task);
        poll_fn(|context| hand_over(|| task.as_mut().poll(context))).await
    })
}

/// Runs a function on one of the runtime's threads for blocking work.
///
/// # Panics
/// Panics outside of a tokio runtime, as [`spawn_blocking`] does.
pub fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    #[expect(clippy::disallowed_methods, reason = "the function to use in its place")]
    spawn_blocking(|| with_blocking_permitted(work))
}

/// Runs a function on the current worker. For calls in a task that may block, but nearly always return within
/// microseconds: the worker is blocked until the call returns. Has no effect on a single-threaded runtime, and where
/// blocking is permitted already.
pub fn in_place<T>(work: impl FnOnce() -> T) -> T {
    let Some(runtime) = runtime_to_protect() else { return work() };
    match Blocking::begin(&runtime) {
        Some(_registration) => with_blocking_permitted(work),
        None => hand_over(work),
    }
}

/// Runs a function that may block for long, or makes many calls, within a task: another thread runs the worker's other
/// tasks from now on. Has the same exceptions as [`in_place`]. If no thread can be started, these tasks wait until
/// the function returns: the worker then takes them up again, because tokio queues it before it starts the thread.
pub fn hand_over<T>(work: impl FnOnce() -> T) -> T {
    if runtime_to_protect().is_none() {
        return work();
    }
    let mut work = Some(work);
    let run = || work.take().map(|work| with_blocking_permitted(work));
    let outcome = catch_unwind(AssertUnwindSafe(|| block_in_place(run)));
    match outcome {
        Ok(Some(value)) => value,
        Err(panic) => match work {
            // The panic was raised by `block_in_place`, before it ran the function.
            Some(work) => with_blocking_permitted(work),
            None => resume_unwind(panic),
        },
        Ok(None) => unreachable!("`work` is only taken once"),
    }
}

/// Returns the runtime; `None` if this thread may block, or the runtime has no other workers.
fn runtime_to_protect() -> Option<Handle> {
    let runtime = Handle::try_current().ok().filter(|_| !MAY_BLOCK.get())?;
    (runtime.runtime_flavor() == RuntimeFlavor::MultiThread).then_some(runtime)
}

fn with_blocking_permitted<T>(work: impl FnOnce() -> T) -> T {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            MAY_BLOCK.set(self.0);
        }
    }
    let _restore = Restore(MAY_BLOCK.replace(true));
    work()
}

#[cfg(test)]
mod tests;
