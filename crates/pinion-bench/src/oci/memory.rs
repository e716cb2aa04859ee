//! Finds the lowest memory limit at which `true` runs.

use std::io;

use super::{
    Contestant,
    bundle::{self, Bundle, Shape},
};
use crate::results::Metric;

/// Granularity of the limits that are tried: a page, or this part of the limit if it is larger.
const PAGE_KIB: u64 = 4;
const PART: u64 = 64;
const MAX_KIB: u64 = 64 << 10;
/// Number of successful runs that are required.
const RUNS: usize = 5;

/// Returns the metric of the lowest limit. Two steps of the search do not count as a difference.
pub(super) fn metric(name: &str) -> Metric {
    Metric::lower(name, "KiB").with_resolution(2.0 * PAGE_KIB as f64, 2.0 / PART as f64)
}

/// Returns the lowest limit in KiB; `None` for what is not an OCI runtime.
pub(crate) fn lowest(contestant: &mut Contestant, base: &Bundle) -> io::Result<Option<u64>> {
    if !contestant.runtime.is_oci() {
        return Ok(None);
    }
    let bundle = base.sibling(&format!("{}-memory", contestant.runtime.name))?;
    let (mut too_low, mut sufficient) = (0, MAX_KIB);
    let mut is_first = true;
    while sufficient - too_low > PAGE_KIB.max(sufficient / PART) {
        let middle = if is_first { MAX_KIB } else { (too_low + sufficient) / 2 / PAGE_KIB * PAGE_KIB };
        let group = format!("{}-memory", contestant.group);
        let shape = Shape { args: &["true"], group: &group, memory: middle << 10, seccomp: true };
        bundle.write(&bundle::spec(&shape, &base.rootfs()))?;
        let mut succeeded = true;
        for number in 0..RUNS {
            let id = format!("bench-memory-{middle}-{number}");
            let words = contestant.runtime.run(&bundle.directory, &group, &id);
            let sample = contestant.runner.run(words, 0)?;
            if sample.has_timed_out {
                // Each further one would take as long, and says nothing about memory.
                contestant.is_stuck = true;
                contestant.discard(&id);
                return Err(io::Error::other(format!("with a limit of {middle} KiB, true does not end")));
            }
            if sample.code != 0 {
                succeeded = false;
                // Some runtimes leave their state behind if they are OOM-killed.
                let _ = contestant.runner.run(contestant.runtime.command(&["delete", "--force", &id]), 0)?;
                break;
            }
        }
        if is_first && !succeeded {
            return Err(io::Error::other(format!(
                "true does not run with {MAX_KIB} KiB: {}",
                contestant.runner.last_error()
            )));
        }
        is_first = false;
        if succeeded { sufficient = middle } else { too_low = middle }
    }
    Ok(Some(sufficient))
}
