//! Dying on purpose, for the tests that prove that nothing is lost: `PINION_CRASH_AT=sandbox.networked`.
//!
//! Only with the feature `failpoint`; else every call is empty.

/// Kills this process with SIGKILL where the environment names this place.
#[cfg(feature = "failpoint")]
pub(crate) fn reach(place: &str) {
    if std::env::var("PINION_CRASH_AT").is_ok_and(|at| at == place) {
        let me = rustix::process::getpid();
        let _ = rustix::process::kill_process(me, rustix::process::Signal::KILL);
    }
}

/// Kills another process with SIGKILL where the environment names this place, and returns when it ended.
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
