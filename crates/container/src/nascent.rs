use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::{AsFd, BorrowedFd, OwnedFd},
    process::{Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid},
};

use crate::{
    Error, ErrorKind,
    net_devices::NetDevices,
    sync::{self, Said},
};

/// A cloned child that sets itself up, then waits before execve.
///
/// Dropping it closes the parent's end of the socket: unless somebody holds a duplicate of [`Nascent::sync`], a child that
/// still waits ends.
#[derive(Debug)]
pub struct Nascent {
    /// Its pid in the caller's PID namespace.
    pub pid: i32,
    /// Its pidfd.
    pub pidfd: OwnedFd,
    /// Its cgroup; who drops it has to remove it.
    pub group: cgroup::Group,
    sync: OwnedFd,
    wait: Wait,
    net_devices: Option<NetDevices>,
}

/// What lets the child go on to execve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    /// The start byte, which was not sent.
    Start,
    /// The start byte, which the monitor that died may have sent.
    PerhapsStart,
    /// Nothing: the child of exec, in its set-up.
    Nothing,
    /// It may have called execve.
    Over,
}

/// How far a child is.
#[derive(Debug)]
pub enum Progress {
    /// Nothing new.
    Pending,
    /// Its namespaces are there, and its spec has something for the runtime to do now (hooks): it waits for
    /// [`Nascent::go_on`].
    NamespacesMade,
    /// Set up; waits for [`Nascent::start`].
    Ready {
        /// The terminal's master side, where the process has one.
        terminal: Option<OwnedFd>,
    },
    /// execve succeeded.
    Executed,
}

impl Nascent {
    pub(crate) fn new(child: syscall::clone::Child, sync: OwnedFd, group: cgroup::Group, waits: bool) -> Self {
        let wait = if waits { Wait::Start } else { Wait::Nothing };
        Self { pid: child.pid, pidfd: child.pidfd, group, sync, wait, net_devices: None }
    }

    /// What is to be moved when the child says that its namespaces are there.
    pub(crate) fn with_net_devices(self, net_devices: Option<NetDevices>) -> Self {
        Self { net_devices, ..self }
    }

    /// Takes over a waiting child of a process that died (`sync` from its descriptor).
    pub fn adopt(pid: i32, pidfd: OwnedFd, sync: OwnedFd, group: cgroup::Group) -> Self {
        Self { pid, pidfd, group, sync, wait: Wait::PerhapsStart, net_devices: None }
    }

    /// Readable when [`Nascent::advance`] has something to say (epoll it). Holding a duplicate keeps the child waiting.
    pub fn sync(&self) -> BorrowedFd<'_> {
        self.sync.as_fd()
    }

    /// Reads what the child says; never blocks.
    ///
    /// # Errors
    /// A failed step of the set-up or a failed execve; the child's end before execve. The child is gone or ends at once;
    /// it is still to be reaped.
    pub fn advance(&mut self) -> Result<Progress, Error> {
        match sync::listen(self.sync.as_fd())? {
            Said::Nothing => Ok(Progress::Pending),
            Said::Failed(error) => Err(error),
            Said::NamespacesMade => match self.net_devices.take() {
                Some(devices) => self.give(&devices).map(|()| Progress::Pending),
                None => Ok(Progress::NamespacesMade),
            },
            Said::Unmapped | Said::Born(..) | Said::Made(_) => Err(self.ended_early()),
            Said::Ready(terminal) => {
                if self.wait == Wait::Nothing {
                    self.wait = Wait::Over;
                }
                Ok(Progress::Ready { terminal })
            }
            Said::End => match self.wait {
                Wait::Over => Ok(Progress::Executed),
                Wait::PerhapsStart if self.lives_on() => Ok(Progress::Executed),
                _ => Err(self.ended_early()),
            },
        }
    }

    fn give(&mut self, devices: &NetDevices) -> Result<(), Error> {
        match devices.give(self.pid, &self.pidfd) {
            Ok(()) => self.go_on(),
            Err(error) => {
                // It waits for what will not come.
                let _ = pidfd_send_signal(&self.pidfd, Signal::KILL);
                Err(error)
            }
        }
    }

    /// Lets the child execve. Nothing to do for the child of [`exec`](crate::exec()).
    ///
    /// # Errors
    /// The child is gone.
    pub fn start(&mut self) -> Result<(), Error> {
        if matches!(self.wait, Wait::Nothing | Wait::Over) {
            return Ok(());
        }
        match sync::start(self.sync.as_fd()) {
            Ok(()) => {
                self.wait = Wait::Over;
                Ok(())
            }
            // It may have said why.
            Err(_) => match self.advance() {
                Err(error) => Err(error),
                Ok(_) => Err(self.ended_early()),
            },
        }
    }

    /// After [`Progress::NamespacesMade`], when the runtime has done its part.
    ///
    /// # Errors
    /// The child is gone.
    pub fn go_on(&mut self) -> Result<(), Error> {
        self.tell(sync::go)
    }

    /// The container will be started over its listening socket ([`Invocation::starter`](crate::Invocation)): it no longer
    /// ends with this process. To be called when what the starter needs to know is written.
    ///
    /// # Errors
    /// The child is gone.
    pub fn leave(&mut self) -> Result<(), Error> {
        self.tell(sync::leave)
    }

    fn tell(&mut self, say: impl FnOnce(BorrowedFd<'_>) -> Result<(), rustix::io::Errno>) -> Result<(), Error> {
        match say(self.sync.as_fd()) {
            Ok(()) => Ok(()),
            // It may have said why.
            Err(_) => match self.advance() {
                Err(error) => Err(error),
                Ok(_) => Err(self.ended_early()),
            },
        }
    }

    /// Neither ended nor about to. A process that ends closes its descriptors before its pidfd tells, so the kernel's flag
    /// (`PF_EXITING`, in proc_pid_stat(5)) is asked too.
    fn lives_on(&self) -> bool {
        const PF_EXITING: u32 = 4;
        let exiting = std::fs::read_to_string(format!("/proc/{}/stat", self.pid)).ok().is_none_or(|stat| {
            let flags = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(6)?.parse::<u32>().ok());
            flags.is_none_or(|flags| flags & PF_EXITING != 0)
        });
        let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
        !exiting && matches!(poll(&mut fds, Some(&Timespec::default())), Ok(0))
    }

    fn ended_early(&self) -> Error {
        // Its descriptors are closed a moment before its end can be read.
        let moment = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
        let _ = poll(&mut [PollFd::new(&self.pidfd, PollFlags::IN)], Some(&moment));
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        let signal = match waitid(WaitId::PidFd(self.pidfd.as_fd()), options) {
            Ok(Some(status)) => status.terminating_signal(),
            _ => None,
        };
        let message = match signal {
            Some(9) => {
                "the process was killed before it could execute its command; if nobody killed it, its memory limit is too \
                 low to start"
                    .to_owned()
            }
            Some(signal) => format!("the process was ended by signal {signal} before it could execute its command"),
            None => "the process ended before it could execute its command".to_owned(),
        };
        Error { kind: ErrorKind::System, message }
    }
}
