//! Signals of the monitor.

use syscall::signal_fd::SignalFd;

/// SIGHUP and SIGINT come from a terminal, and a monitor has no terminal; SIGTERM comes from a service manager.
const SIGNALS: [i32; 4] = [libc::SIGCHLD, libc::SIGTERM, libc::SIGINT, libc::SIGHUP];

/// Blocks the termination signals and SIGCHLD, and returns a signalfd that reads them.
pub(crate) fn block() -> Result<SignalFd, String> {
    syscall::signals::reset_sigchld();
    SignalFd::block(&SIGNALS).map_err(|error| format!("block signals: {error}"))
}
