use std::time::Duration;

use serde::Serialize;

use super::{Shape, life};
use crate::{
    engine::{Engine, Failure},
    process::Processes,
};

/// Between the two readings of living pods.
const SETTLE: Duration = Duration::from_secs(1);

/// What living pods cost beside the users' processes.
#[derive(Debug, Serialize)]
pub(crate) struct Density {
    /// The engine.
    pub(crate) engine: String,
    /// Pods that lived at once.
    pub(crate) pods: usize,
    /// Proportional memory of the daemon and all below it before the first pod, KiB.
    pub(crate) rest_kib: u64,
    /// Per pod: processes beside the user's.
    pub(crate) processes: f64,
    /// Per pod: proportional memory beside the user's process, KiB.
    pub(crate) pss_kib: f64,
    /// Per pod: entries more in the host's mountinfo.
    pub(crate) mounts: f64,
}

/// Starts `pods` pods, counts, and removes them.
pub(crate) async fn measure(engine: &Engine, shape: &Shape, pods: usize) -> Result<Density, Failure> {
    let before = (Processes::now(), mounts());
    let mut alive = Vec::new();
    for number in 0..pods {
        alive.push(life::begin(engine, shape, &format!("dense-{number}")).await?);
    }
    let after = (Processes::now(), mounts());
    // Programs that engines start for a moment (probes, clean-up) are no cost of a pod that lives.
    tokio::time::sleep(SETTLE).await;
    let after = (after.0.that_stayed(&Processes::now()), after.1);
    let (processes, pss) = after.0.since(&before.0, &shape.command().join(" "));
    for one in alive {
        life::end(engine, one).await?;
    }
    let per = |value: i64| value as f64 / pods as f64;
    Ok(Density {
        engine: engine.name.clone(),
        pods,
        rest_kib: before.0.pss_below(engine.daemon) / 1024,
        processes: per(processes),
        pss_kib: per(pss) / 1024.0,
        mounts: per(after.1 - before.1),
    })
}

fn mounts() -> i64 {
    std::fs::read_to_string("/proc/self/mountinfo").map_or(0, |text| text.lines().count() as i64)
}
