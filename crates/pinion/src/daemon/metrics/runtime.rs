//! Measurements of the async runtime: its threads and tasks.

use telemetry::Gauge;
use tokio::runtime::Handle;

/// Number of threads of the runtime, including those for blocking tasks.
static THREADS: Gauge = Gauge::new();

/// Counts a thread of the runtime that starts; must be called on that thread.
pub(crate) fn thread_started() {
    THREADS.add(1);
}

/// Counts a thread of the runtime that ends; must be called on that thread.
pub(crate) fn thread_ended() {
    THREADS.add(-1);
}

/// A snapshot of the runtime's measurements.
pub(super) struct Runtime {
    pub(super) workers: u64,
    pub(super) blocking: u64,
    pub(super) tasks: u64,
    pub(super) queue: u64,
    pub(super) busy_seconds: f64,
}

impl Runtime {
    /// Reads the measurements. Must be called within the runtime.
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
