//! Tasks that may block, off the workers of the async runtime.
//!
//! A worker of tokio that blocks keeps the task that it woke last: no other worker can run that task, and it may be the
//! connection that all requests of a client arrive on. When all workers block, no request is answered at all. Files of
//! the state directory, cgroups and `/proc` do block: for memory, for locks of the kernel, for other processes. So
//! background tasks are spawned by [`spawn`], and requests do such calls in [`here`] or on threads of their own.

#![forbid(unsafe_code)]

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
    /// This thread runs nothing else at the moment, or others run what it has to.
    static MAY_BLOCK: Cell<bool> = const { Cell::new(false) };
}

/// Spawns a task that may block whenever it is polled. The worker's other tasks run on another thread in the meantime.
///
/// # Panics
/// Outside of a tokio runtime, as [`tokio::spawn`] does.
pub fn spawn<T: Send + 'static>(task: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    tokio::spawn(async move {
        let mut task = pin!(task);
        poll_fn(|context| hand_over(|| task.as_mut().poll(context))).await
    })
}

/// Runs a function on one of the runtime's threads for what blocks.
///
/// # Panics
/// Outside of a tokio runtime, as [`spawn_blocking`] does.
pub fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    spawn_blocking(|| allowed(work))
}

/// Runs a function within a task that nearly always returns within microseconds, and may block: it holds the worker
/// until it returns. Without effect on a runtime of a single thread, and where blocking is allowed already.
pub fn here<T>(work: impl FnOnce() -> T) -> T {
    let Some(runtime) = runtime_to_protect() else { return work() };
    match Blocking::begin(&runtime) {
        Some(_until_it_returned) => allowed(work),
        None => hand_over(work),
    }
}

/// Runs a function within a task that may block for long, or makes many calls: another thread runs the worker's other
/// tasks from now on. Without effect where [`here`] is. Where none can be started, they wait: the worker takes them up
/// again, since tokio queues it before it starts the thread.
pub fn hand_over<T>(work: impl FnOnce() -> T) -> T {
    if runtime_to_protect().is_none() {
        return work();
    }
    let mut work = Some(work);
    let run = || work.take().map(|work| allowed(work));
    let done = catch_unwind(AssertUnwindSafe(|| block_in_place(run)));
    match done {
        Ok(Some(value)) => value,
        Err(panic) => match work {
            // It panics before it runs anything.
            Some(work) => allowed(work),
            None => resume_unwind(panic),
        },
        Ok(None) => unreachable!("it is there until it runs"),
    }
}

/// `None`: this thread may block, or has no others beside it.
fn runtime_to_protect() -> Option<Handle> {
    let runtime = Handle::try_current().ok().filter(|_| !MAY_BLOCK.get())?;
    (runtime.runtime_flavor() == RuntimeFlavor::MultiThread).then_some(runtime)
}

fn allowed<T>(work: impl FnOnce() -> T) -> T {
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
