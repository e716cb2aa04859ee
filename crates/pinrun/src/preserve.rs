//! Descriptors beyond 2 that the process gets: `--preserve-fds`, and those of socket activation (sd_listen_fds(3)).

use crate::{failure::Failure, flags::Flags};

/// As many from 3 on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Preserved {
    /// All of them.
    pub(crate) count: u32,
    /// How many of them, the first, are sockets of the activation.
    listen: u32,
}

impl Preserved {
    /// Of the command line and the environment. To be called before anything is opened: what is open from 3 on is the
    /// caller's then.
    pub(crate) fn parse(flags: &Flags) -> Result<Self, Failure> {
        let listen = activated().unwrap_or(0);
        let asked = flags.parsed::<u32>("preserve-fds")?.unwrap_or(0);
        let count = asked.checked_add(listen).filter(|count| *count <= i32::MAX as u32 - 3);
        let count = count.ok_or_else(|| Failure::usage(format!("--preserve-fds {asked}: too many")))?;
        match (3..3 + count as i32).find(|fd| !syscall::inherited::is_open(*fd)) {
            None => Ok(Self { count, listen }),
            Some(fd) => Err(Failure::usage(format!("--preserve-fds {asked}: descriptor {fd} is not open"))),
        }
    }

    /// The activation goes on to the container's init.
    pub(crate) fn tell(&self, environment: &mut Vec<String>) {
        if self.listen > 0 {
            environment.retain(|variable| !variable.starts_with("LISTEN_FDS=") && !variable.starts_with("LISTEN_PID="));
            environment.push(format!("LISTEN_FDS={}", self.listen));
            environment.push("LISTEN_PID=1".to_owned());
        }
    }
}

/// How many sockets were handed to this very process.
fn activated() -> Option<u32> {
    let count = std::env::var("LISTEN_FDS").ok()?.parse().ok()?;
    let pid: i32 = std::env::var("LISTEN_PID").ok()?.parse().ok()?;
    (pid == rustix::process::getpid().as_raw_nonzero().get()).then_some(count)
}
