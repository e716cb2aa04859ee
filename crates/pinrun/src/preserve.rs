//! Descriptors from 3 on that the process inherits: `--preserve-fds`, and those of socket activation
//! (sd_listen_fds(3)).

use crate::{failure::Failure, flags::Flags};

/// The number of inherited descriptors, counted from descriptor 3.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PreservedFds {
    /// All inherited descriptors.
    pub(crate) count: u32,
    /// The first of them that are sockets of socket activation.
    listen: u32,
}

impl PreservedFds {
    /// Parses the command line and the environment. To be called before any file is opened: until then all descriptors
    /// from 3 on are the caller's.
    pub(crate) fn parse(flags: &Flags) -> Result<Self, Failure> {
        let listen = activation_sockets().unwrap_or(0);
        let requested = flags.parsed::<u32>("preserve-fds")?.unwrap_or(0);
        let count = requested.checked_add(listen).filter(|count| *count <= i32::MAX as u32 - 3);
        let count = count.ok_or_else(|| Failure::usage(format!("--preserve-fds {requested}: too many")))?;
        match (3..3 + count as i32).find(|fd| !syscall::inherited::is_open(*fd)) {
            None => Ok(Self { count, listen }),
            Some(fd) => Err(Failure::usage(format!("--preserve-fds {requested}: descriptor {fd} is not open"))),
        }
    }

    /// Sets LISTEN_FDS and LISTEN_PID for the container's process.
    pub(crate) fn set_activation(&self, environment: &mut Vec<String>) {
        if self.listen > 0 {
            environment.retain(|variable| !variable.starts_with("LISTEN_FDS=") && !variable.starts_with("LISTEN_PID="));
            environment.push(format!("LISTEN_FDS={}", self.listen));
            environment.push("LISTEN_PID=1".to_owned());
        }
    }
}

/// Returns the number of activation sockets that were passed to this process.
fn activation_sockets() -> Option<u32> {
    let count = std::env::var("LISTEN_FDS").ok()?.parse().ok()?;
    let pid: i32 = std::env::var("LISTEN_PID").ok()?.parse().ok()?;
    (pid == rustix::process::getpid().as_raw_nonzero().get()).then_some(count)
}
