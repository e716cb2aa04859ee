//! Sets the CPU priority of the daemon's threads.

use syscall::scheduling;

/// Nice value for the autogroup of a daemon that is a session leader (sched(7)).
const AUTOGROUP_NICE: i32 = -5;

/// Raises the priority of the calling thread, which serves requests, above that of containers. Threads and programs
/// that it starts have the default nice value; programs are in the daemon's autogroup, unless they start a session.
pub(super) fn run_before_containers() {
    scheduling::prioritize_request_thread();
}

/// Raises the priority of the daemon's autogroup.
pub(super) fn raise_autogroup() {
    if let Err(error) = scheduling::set_autogroup_nice(AUTOGROUP_NICE) {
        tracing::debug!("set the nice value of the autogroup: {error}");
    }
}
