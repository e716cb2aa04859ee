use std::time::{Duration, Instant};

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
    /// Time until all pods run, one after the other.
    #[serde(skip)]
    pub(crate) start: Duration,
    /// Time to stop and remove them, or why this failed.
    #[serde(skip)]
    pub(crate) removal: Result<Duration, Failure>,
}

/// Starts `pods` pods whose names begin with `prefix`, measures them, and removes them, also after a failure.
///
/// # Errors
/// When a pod cannot be started, or when the processes of the engine cannot be read.
pub(crate) async fn measure(engine: &Engine, shape: &Shape, pods: usize, prefix: &str) -> Result<Density, Failure> {
    let before = (Processes::now(), mounts());
    let daemon = engine.daemon_now()?;
    let rest_kib = before.0.pss_of_tree(daemon) / 1024;
    if rest_kib == 0 {
        return Err(Failure(format!("{}: the memory of process {daemon} cannot be read", engine.name)));
    }
    let start = Instant::now();
    let mut running_pods = Vec::new();
    let mut failure = None;
    for number in 0..pods {
        let (mut life, pod) = lifecycle::begin(engine, shape, &format!("{prefix}-{number}")).await;
        running_pods.extend(pod);
        failure = life.take_failure();
        if failure.is_some() {
            break;
        }
    }
    let start = start.elapsed();
    let after = (Processes::now(), mounts());
    // Short-lived programs of the engine (probes, cleanup) are not a cost of a running pod.
    tokio::time::sleep(SETTLE).await;
    let after = (after.0.retain_alive(&Processes::now()), after.1);
    let (processes, pss) = after.0.since(&before.0, &shape.command().join(" "));
    let removal = Instant::now();
    let mut removed = Ok(());
    for pod in running_pods {
        let mut life = lifecycle::end(engine, pod).await;
        removed = removed.and(life.take_failure().map_or(Ok(()), Err));
        if life.has_timed_out() {
            break; // Each further pod would take as long. They are removed after the run.
        }
    }
    let per = |value: i64| value as f64 / pods as f64;
    match failure {
        Some(failure) => Err(failure),
        None => Ok(Density {
            engine: engine.name.clone(),
            pods,
            rest_kib,
            processes: per(processes),
            pss_kib: per(pss) / 1024.0,
            mounts: per(after.1 - before.1),
            start,
            removal: removed.map(|()| removal.elapsed()),
        }),
    }
}

fn mounts() -> i64 {
    std::fs::read_to_string("/proc/self/mountinfo").map_or(0, |text| text.lines().count() as i64)
}
