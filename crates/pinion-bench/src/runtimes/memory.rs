//! Finds the lowest memory limit at which `true` runs.

use super::{contestant::Contestants, engine_run::EnginePod};
use crate::engine::Failure;

/// Difference between two limits that are tried with an engine.
pub(super) const STEP_KIB: u64 = 64;
const MAX_KIB: u64 = 64 << 10;
/// Number of successful runs that are required.
const RUNS: usize = 5;

/// Returns the lowest limit in KiB of a contestant; `None` for a client, whose engine has a limit of its own.
pub(crate) async fn lowest(contestants: &mut Contestants, index: usize) -> Result<Option<u64>, Failure> {
    if let Some(pod) = contestants.pods.get_mut(index) {
        let limit = lowest_of(pod).await;
        if pod.is_silent() {
            return Err(Failure("with a limit, true does not end".to_owned()));
        }
        return limit.map(Some).ok_or_else(|| Failure(format!("true does not run with {MAX_KIB} KiB")));
    }
    let runtime = index - contestants.pods.len();
    let limit = tokio::task::block_in_place(|| contestants.command_lines.lowest_memory(runtime));
    limit.map_err(|e| Failure(format!("find the lowest memory limit: {e}")))
}

async fn lowest_of(pod: &mut EnginePod) -> Option<u64> {
    let (mut too_low, mut sufficient) = (0, MAX_KIB);
    if !runs_with(pod, sufficient).await {
        return None;
    }
    while sufficient - too_low > STEP_KIB && !pod.is_silent() {
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
