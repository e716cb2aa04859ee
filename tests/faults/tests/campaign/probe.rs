//! Execs in the bystander, one after the other, while a point is run.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use cri_proto::v1;
use tokio::task::JoinHandle;

use crate::stage::Stage;

/// Between two execs.
const PAUSE: Duration = Duration::from_millis(50);
/// A bound for a broken run, not a measure.
const DEADLINE: Duration = Duration::from_secs(30);

/// Execs that are running. See the head of this file.
pub(crate) struct Probe {
    over: Arc<AtomicBool>,
    task: JoinHandle<Duration>,
}

impl Probe {
    pub(crate) fn start(stage: &Stage) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let (mut runtime, container_id) = (stage.runtime.clone(), stage.bystander.container.clone());
        let stop = Arc::clone(&over);
        let task = tokio::spawn(async move {
            let mut longest = Duration::ZERO;
            while !stop.load(Ordering::Relaxed) {
                let request =
                    v1::ExecSyncRequest { container_id: container_id.clone(), cmd: vec!["true".into()], timeout: 0 };
                let begin = Instant::now();
                // What fails with the fault is no measure of time, and is tried again.
                if let Ok(Ok(_)) | Err(_) = tokio::time::timeout(DEADLINE, runtime.exec_sync(request)).await {
                    longest = longest.max(begin.elapsed());
                }
                tokio::time::sleep(PAUSE).await;
            }
            longest
        });
        Self { over, task }
    }

    /// How long the slowest exec took.
    pub(crate) async fn longest(self) -> Duration {
        self.over.store(true, Ordering::Relaxed);
        self.task.await.unwrap_or(DEADLINE)
    }
}
