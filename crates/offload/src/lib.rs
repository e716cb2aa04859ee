//! Tasks that may block, off the workers of the async runtime.
//!
//! A worker of tokio that blocks keeps the task that it woke last: no other worker can run that task, and it may be the
//! connection that all requests of a client arrive on. When all workers block, no request is answered at all. Files of the
//! state directory, cgroups and `/proc` do block: for memory, for locks of the kernel, for other processes. So background tasks are
//! spawned by [`spawn`], and requests do such calls in [`here`] or on threads of their own.

#![forbid(unsafe_code)]

use std::{future::poll_fn, pin::pin};

use tokio::{
    runtime::{Handle, RuntimeFlavor},
    task::{JoinHandle, block_in_place},
};

/// Spawns a task that may block whenever it is polled. The worker's other tasks run on another thread in the meantime.
///
/// # Panics
/// Outside of a tokio runtime, as [`tokio::spawn`] does.
pub fn spawn<T: Send + 'static>(task: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    tokio::spawn(async move {
        let mut task = pin!(task);
        poll_fn(|context| here(|| task.as_mut().poll(context))).await
    })
}

/// Runs a function that may block, within a task. Without effect on a runtime of a single thread.
pub fn here<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => block_in_place(work),
        _ => work(),
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, time::Duration};

    use tokio::{sync::oneshot, time::timeout};

    use super::*;

    /// A bound for a broken run, not a measure.
    const LONG: Duration = Duration::from_secs(10);

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn tasks_that_block_delay_neither_the_tasks_they_woke_nor_others() {
        let (mut blocked, mut woken) = (Vec::new(), Vec::new());
        for _ in 0..4 {
            let (wake, waiting) = oneshot::channel::<()>();
            let (release, released) = mpsc::channel::<()>();
            woken.push(tokio::spawn(async move { waiting.await.expect("woken") }));
            let task = spawn(async move {
                wake.send(()).expect("it waits");
                released.recv_timeout(LONG).expect("released");
            });
            blocked.push((task, release));
        }
        for task in woken {
            timeout(LONG / 2, task).await.expect("not delayed").expect("no panic");
        }
        for (task, release) in blocked {
            release.send(()).expect("it blocks");
            task.await.expect("no panic");
        }
    }

    #[tokio::test]
    async fn a_runtime_of_one_thread_runs_them_too() {
        assert_eq!(spawn(async { here(|| 7) }).await.expect("no panic"), 7);
    }
}
