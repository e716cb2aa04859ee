//! `linux.seccomp`: the compiled filter, and its seccomp agent.

use rustix::fd::BorrowedFd;

use crate::{
    Error,
    error::During,
    hooks,
    notify::{Notify, SeccompAgent},
    procfs::Procfs,
};

/// `SECCOMP_FILTER_FLAG_NEW_LISTENER`, set if a rule has the action `SCMP_ACT_NOTIFY`.
const NEW_LISTENER: u32 = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER as u32;

/// The seccomp filter of a process.
#[derive(Debug)]
pub(crate) struct Filter {
    program: seccomp::Program,
    notify: Option<Notify>,
}

impl Filter {
    /// Checks the filter and its agent. An agent is ignored if no rule of the profile notifies it.
    pub(crate) fn parse(program: seccomp::Program, agent: Option<SeccompAgent>) -> Result<Self, Error> {
        let notify = match (program.flags & NEW_LISTENER != 0, agent) {
            (false, _) => None,
            (true, Some(agent)) => Some(Notify::parse(agent)?),
            (true, None) => {
                return Err(Error::invalid(
                    "linux.seccomp: a rule has the action SCMP_ACT_NOTIFY, but listenerPath names no agent",
                ));
            }
        };
        Ok(Self { program, notify })
    }

    /// Connects to the agent. Runs in the caller, before the clone.
    pub(crate) fn connect(&mut self) -> Result<(), Error> {
        self.notify.as_mut().map_or(Ok(()), Notify::connect)
    }

    /// Returns the descriptor that the child needs until execve.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.notify.as_ref()?.descriptor()
    }

    /// Builds the message for the agent, while the host's procfs is available.
    pub(crate) fn message(&self, proc: &Procfs) -> Result<Option<Vec<u8>>, Error> {
        self.notify.as_ref().map(|notify| Ok(notify.message(hooks::own_pid(proc)?))).transpose()
    }

    /// Loads the filter in the child. When this returns, the agent has the listener.
    pub(crate) fn load(&self, message: Option<&[u8]>) -> Result<(), Error> {
        let courier = match (&self.notify, message) {
            (Some(notify), Some(message)) => Some(notify.start_courier(message.to_vec())?),
            _ => None,
        };
        let listener = syscall::seccomp::load_filter(&self.program.filter, self.program.flags).during(|| {
            let count = self.program.filter.len() / syscall::seccomp::INSTRUCTION_SIZE;
            format!("load the seccomp filter ({count} instructions, flags {:#x})", self.program.flags)
        })?;
        match (courier, listener) {
            (Some(courier), Some(listener)) => courier.deliver(listener),
            _ => Ok(()),
        }
    }
}

/// The seccomp filter of an exec'd process, for [`exec`](crate::exec()).
#[derive(Clone, Copy, Debug)]
pub struct ExecFilter<'a> {
    /// The compiled profile.
    pub program: &'a seccomp::Program,
    /// The agent for rules with the action `SCMP_ACT_NOTIFY`.
    pub agent: Option<&'a SeccompAgent>,
}

impl ExecFilter<'_> {
    pub(crate) fn parse(&self) -> Result<Filter, Error> {
        Filter::parse(self.program.clone(), self.agent.cloned())
    }
}

impl<'a> From<&'a seccomp::Program> for ExecFilter<'a> {
    fn from(program: &'a seccomp::Program) -> Self {
        Self { program, agent: None }
    }
}
