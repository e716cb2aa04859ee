//! Precedence of the monitor over containers, so that their load does not delay requests about others.

use std::time::Duration;

use syscall::scheduling;

/// Nice value: the highest priority, see sched(7).
const NICE: i32 = -20;
/// Time slice. Most iterations of the event loop take less.
const SLICE: Duration = Duration::from_micros(500);

/// Gives the monitor precedence over containers.
///
/// Processes that the monitor starts have the default nice value; log writers and containers leave its autogroup. If
/// the kernel refuses it (without `CAP_SYS_NICE`), the monitor is scheduled as any other process.
pub(crate) fn run_before_containers() {
    let _ = scheduling::prioritize_thread(NICE, SLICE);
    let _ = scheduling::set_autogroup_nice(NICE);
}
