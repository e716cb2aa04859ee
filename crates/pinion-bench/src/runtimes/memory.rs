//! Finds the lowest memory limit at which `true` runs.

use super::{contestant::Contestants, engine_run::EnginePod};
use crate::engine::Failure;

const STEP_KIB: u64 = 64;
const MAX_KIB: u64 = 64 << 10;
/// Number of successful runs that are required.
const RUNS: usize = 10;

/// Returns the lowest limit in KiB for each contestant; `None` if there is none up to 64 MiB.
pub(crate) async fn lowest(contestants: &mut Contestants) -> Result<Vec<Option<u64>>, Failure> {
    let mut limits = Vec::new();
    for pod in &mut contestants.pods {
        limits.push(lowest_of(pod).await);
    }
    let alone = tokio::task::block_in_place(|| contestants.command_lines.lowest_memory());
    limits.extend(alone.map_err(|e| Failure(format!("find the lowest memory limit: {e}")))?);
    Ok(limits)
}

async fn lowest_of(pod: &mut EnginePod) -> Option<u64> {
    let (mut too_low, mut sufficient) = (0, MAX_KIB);
    if !runs_with(pod, sufficient).await {
        return None;
    }
    while sufficient - too_low > STEP_KIB {
        let middle = (too_low + sufficient) / 2 / STEP_KIB * STEP_KIB;
        if runs_with(pod, middle).await { sufficient = middle } else { too_low = middle }
    }
    Some(sufficient)
}

async fn runs_with(pod: &mut EnginePod, limit_kib: u64) -> bool {
    for _ in 0..RUNS {
        if pod.run_true(Some((limit_kib << 10) as i64)).await.is_err() {
            return false;
        }
    }
    true
}
