//! Repeatedly executes a command in the bystander while a point is run.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use cri_proto::v1;
use tokio::task::JoinHandle;

use crate::fixture::Fixture;

/// Time between two execs.
const PAUSE: Duration = Duration::from_millis(50);
/// A bound for failing runs.
const DEADLINE: Duration = Duration::from_secs(30);

/// The running probe.
pub(crate) struct Probe {
    stop: Arc<AtomicBool>,
    task: JoinHandle<Duration>,
}

impl Probe {
    pub(crate) fn start(fixture: &Fixture) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (mut runtime, container_id) = (fixture.runtime.clone(), fixture.bystander.container.clone());
        let task_stop = Arc::clone(&stop);
        let task = tokio::spawn(async move {
            let mut longest = Duration::ZERO;
            while !task_stop.load(Ordering::Relaxed) {
                let request =
                    v1::ExecSyncRequest { container_id: container_id.clone(), cmd: vec!["true".into()], timeout: 0 };
                let start = Instant::now();
                // An exec that fails because of the fault is not measured, and is repeated.
                if let Ok(Ok(_)) | Err(_) = tokio::time::timeout(DEADLINE, runtime.exec_sync(request)).await {
                    longest = longest.max(start.elapsed());
                }
                tokio::time::sleep(PAUSE).await;
            }
            longest
        });
        Self { stop, task }
    }

    /// Stops the probe and returns the duration of the slowest exec.
    pub(crate) async fn longest(self) -> Duration {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.unwrap_or(DEADLINE)
    }
}
