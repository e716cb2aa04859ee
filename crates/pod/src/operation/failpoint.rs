//! Crashes at named points, for the tests of recovery: `PINION_CRASH_AT=sandbox.networked`.
//!
//! Only with the feature `failpoint`; without it every call is empty.

/// Kills this process with SIGKILL if the environment names this failpoint.
#[cfg(feature = "failpoint")]
pub(crate) fn reach(place: &str) {
    if std::env::var("PINION_CRASH_AT").is_ok_and(|at| at == place) {
        let me = rustix::process::getpid();
        let _ = rustix::process::kill_process(me, rustix::process::Signal::KILL);
    }
}

/// Kills another process with SIGKILL if the environment names this failpoint, and returns when that process has ended.
#[cfg(feature = "failpoint")]
pub(crate) fn lose(place: &str, process: &rustix::fd::OwnedFd) {
    use rustix::event::{PollFd, PollFlags, poll};
    if std::env::var("PINION_CRASH_AT").is_ok_and(|at| at == place) {
        let _ = rustix::process::pidfd_send_signal(process, rustix::process::Signal::KILL);
        let _ = poll(&mut [PollFd::new(process, PollFlags::IN)], None);
    }
}

/// Does nothing: the feature `failpoint` is off.
#[cfg(not(feature = "failpoint"))]
pub(crate) fn reach(_place: &str) {}

/// Does nothing: the feature `failpoint` is off.
#[cfg(not(feature = "failpoint"))]
pub(crate) fn lose(_place: &str, _process: &rustix::fd::OwnedFd) {}
