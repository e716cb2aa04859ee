use monitor_api::{Failure, FailureKind, MAJOR, MINOR, Reply};

use super::Answer;
use crate::{link::welcome, monitor::Monitor};

/// Accepts daemons of the same major version only.
pub(super) fn hello(monitor: &mut Monitor, major: u32, minor: u32) -> Answer {
    let version = env!("CARGO_PKG_VERSION");
    if major != MAJOR {
        let message = format!(
            "the daemon implements version {major}.{minor} of the monitor's contract, but pinmon {version} \
             implements {MAJOR}.{MINOR}; run a daemon of that version until its containers are deleted"
        );
        return Err(Failure::new(FailureKind::Version, message));
    }
    if let Some(peer) = &mut monitor.services.link.peer {
        peer.greeted = true;
    }
    Ok(Some(Reply::Welcome(welcome())))
}
