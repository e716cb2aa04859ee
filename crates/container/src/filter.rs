//! `linux.seccomp`: the compiled filter, and the agent that it asks.

use rustix::fd::BorrowedFd;

use crate::{
    Error,
    error::During,
    hooks,
    notify::{Agent, Notify},
    procfs::Procfs,
};

/// `SECCOMP_FILTER_FLAG_NEW_LISTENER`: some rule says `SCMP_ACT_NOTIFY`.
const NEW_LISTENER: u32 = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER as u32;

/// A filter for a process.
#[derive(Debug)]
pub(crate) struct Filter {
    program: seccomp::Program,
    notify: Option<Notify>,
}

impl Filter {
    /// An agent of a profile that never asks one is not looked at.
    pub(crate) fn parse(program: seccomp::Program, agent: Option<Agent>) -> Result<Self, Error> {
        let notify = match (program.flags & NEW_LISTENER != 0, agent) {
            (false, _) => None,
            (true, Some(agent)) => Some(Notify::parse(agent)?),
            (true, None) => {
                return Err(Error::invalid(
                    "linux.seccomp: a rule says SCMP_ACT_NOTIFY, but listenerPath names no agent that would answer",
                ));
            }
        };
        Ok(Self { program, notify })
    }

    /// In the caller, before the clone.
    pub(crate) fn connect(&mut self) -> Result<(), Error> {
        self.notify.as_mut().map_or(Ok(()), Notify::connect)
    }

    /// What the child needs until execve.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.notify.as_ref()?.descriptor()
    }

    /// What the agent is to be told; asked for while the host's procfs is there.
    pub(crate) fn message(&self, proc: &Procfs) -> Result<Option<Vec<u8>>, Error> {
        self.notify.as_ref().map(|notify| Ok(notify.message(hooks::own_pid(proc)?))).transpose()
    }

    /// In the child. When it returns, the agent has the listener.
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

/// A filter for a command in a container, by [`exec`](crate::exec()).
#[derive(Clone, Copy, Debug)]
pub struct ExecFilter<'a> {
    /// The compiled profile.
    pub program: &'a seccomp::Program,
    /// Who is asked, where a rule says `SCMP_ACT_NOTIFY`.
    pub agent: Option<&'a Agent>,
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
