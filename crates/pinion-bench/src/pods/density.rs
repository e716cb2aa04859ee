use std::time::Duration;

use serde::Serialize;

use super::{Shape, lifecycle};
use crate::{
    engine::{Engine, Failure},
    process::Processes,
};

/// Time between the two readings of running pods.
const SETTLE: Duration = Duration::from_secs(1);

/// The cost of running pods without the processes of the containers.
#[derive(Debug, Serialize)]
pub(crate) struct Density {
    /// Name of the engine.
    pub(crate) engine: String,
    /// Number of running pods.
    pub(crate) pods: usize,
    /// PSS of the daemon and its descendants before the first pod, in KiB.
    pub(crate) rest_kib: u64,
    /// Processes per pod, without those of the container.
    pub(crate) processes: f64,
    /// PSS per pod in KiB, without the processes of the container.
    pub(crate) pss_kib: f64,
    /// Additional entries in the mountinfo of the host per pod.
    pub(crate) mounts: f64,
}

/// Starts `pods` pods, measures them, and removes them.
pub(crate) async fn measure(engine: &Engine, shape: &Shape, pods: usize) -> Result<Density, Failure> {
    let before = (Processes::now(), mounts());
    let mut running_pods = Vec::new();
    for number in 0..pods {
        running_pods.push(lifecycle::start_pod(engine, shape, &format!("dense-{number}")).await?);
    }
    let after = (Processes::now(), mounts());
    // Short-lived programs of the engine (probes, cleanup) are not a cost of a running pod.
    tokio::time::sleep(SETTLE).await;
    let after = (after.0.retain_alive(&Processes::now()), after.1);
    let (processes, pss) = after.0.since(&before.0, &shape.command().join(" "));
    for pod in running_pods {
        lifecycle::remove_pod(engine, pod).await?;
    }
    let per = |value: i64| value as f64 / pods as f64;
    Ok(Density {
        engine: engine.name.clone(),
        pods,
        rest_kib: before.0.pss_of_tree(engine.daemon) / 1024,
        processes: per(processes),
        pss_kib: per(pss) / 1024.0,
        mounts: per(after.1 - before.1),
    })
}

fn mounts() -> i64 {
    std::fs::read_to_string("/proc/self/mountinfo").map_or(0, |text| text.lines().count() as i64)
}
