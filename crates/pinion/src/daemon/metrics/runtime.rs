//! The asynchronous runtime: its threads, its tasks.

use telemetry::Gauge;
use tokio::runtime::Handle;

/// Threads of the runtime, those for blocking work among them.
static THREADS: Gauge = Gauge::new();

/// To be called by every thread of the runtime as it starts.
pub(crate) fn thread_started() {
    THREADS.add(1);
}

/// To be called by every thread of the runtime as it ends.
pub(crate) fn thread_ended() {
    THREADS.add(-1);
}

/// One moment of the runtime.
pub(super) struct Runtime {
    pub(super) workers: u64,
    pub(super) blocking: u64,
    pub(super) tasks: u64,
    pub(super) queue: u64,
    pub(super) busy_seconds: f64,
}

impl Runtime {
    /// Must be called within it.
    pub(super) fn read() -> Self {
        let metrics = Handle::current().metrics();
        let workers = metrics.num_workers();
        let busy = (0..workers).map(|worker| metrics.worker_total_busy_duration(worker).as_secs_f64()).sum();
        let all = u64::try_from(THREADS.get()).unwrap_or(0);
        Self {
            workers: workers as u64,
            blocking: all.saturating_sub(workers as u64),
            tasks: metrics.num_alive_tasks() as u64,
            queue: metrics.global_queue_depth() as u64,
            busy_seconds: busy,
        }
    }
}
