//! CPU priority of the daemon's threads.

use syscall::scheduling;

/// Nice value of the autogroup of a daemon that leads its session.
const AUTOGROUP_NICE: i32 = -5;

/// Lets the calling thread, which requests wait for, run before containers. Threads and programs that it starts have
/// the default nice value; programs are in the daemon's autogroup, unless they start a session.
pub(super) fn run_before_containers() {
    scheduling::serve_requests();
}

/// Raises the autogroup's priority.
pub(super) fn raise_autogroup() {
    if let Err(error) = scheduling::set_autogroup_nice(AUTOGROUP_NICE) {
        tracing::debug!("set the nice value of the autogroup: {error}");
    }
}
