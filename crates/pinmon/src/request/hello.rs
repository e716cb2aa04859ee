use monitor_api::{Failure, FailureKind, MAJOR, MINOR, Reply, Welcome};

use super::Answer;
use crate::monitor::Monitor;

impl Monitor {
    /// Accepts daemons of the same major version only.
    pub(super) fn hello(&mut self, major: u32, minor: u32) -> Answer {
        let version = env!("CARGO_PKG_VERSION");
        if major != MAJOR {
            let message = format!(
                "the daemon implements version {major}.{minor} of the monitor's contract, but pinmon {version} \
                 implements {MAJOR}.{MINOR}; run a daemon of that version until its containers are deleted"
            );
            return Err(Failure::new(FailureKind::Version, message));
        }
        if let Some(link) = &mut self.link {
            link.greeted = true;
        }
        Ok(Some(Reply::Welcome(self.welcome())))
    }

    /// Describes this monitor.
    pub(crate) fn welcome(&self) -> Welcome {
        let pid = rustix::process::getpid().as_raw_nonzero().get().unsigned_abs();
        Welcome { major: MAJOR, minor: MINOR, pid, version: env!("CARGO_PKG_VERSION").to_owned() }
    }
}
