use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::{AsFd, BorrowedFd, OwnedFd},
    io::Errno,
    process::{Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid},
};

use crate::{
    Error, ErrorKind,
    error::During,
    id_mappings::IdMappings,
    intel_rdt::IntelRdt,
    net_devices::NetDevices,
    sync::{self, Said},
    user_namespace::write_maps,
};

/// A cloned child that sets itself up, then waits before execve.
///
/// Dropping it closes the parent's end of the socket: unless somebody holds a duplicate of [`Nascent::sync`], a child
/// that still waits ends.
#[derive(Debug)]
pub struct Nascent {
    /// Its pid in the caller's PID namespace; that of its intermediate process until [`Nascent::is_cloned`].
    pub pid: i32,
    /// The pidfd of the same process.
    pub pidfd: OwnedFd,
    /// Its cgroup; who drops it has to remove it.
    pub group: cgroup::Group,
    sync: OwnedFd,
    wait: Wait,
    net_devices: Option<NetDevices>,
    intermediate: Option<Intermediate>,
    /// What the caller could not do for it; it was killed.
    failure: Option<Error>,
}

/// An intermediate process at work, and what its parent has to do for it and for the child that it clones.
#[derive(Debug, Default)]
pub(crate) struct Intermediate {
    /// Maps of the user namespace that it makes.
    pub(crate) mappings: Option<IdMappings>,
    /// The resource control of the child.
    pub(crate) intel_rdt: Option<IntelRdt>,
    /// Whether systemd is to move the child into its group.
    pub(crate) attach: bool,
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
        let (pid, pidfd) = (child.pid, child.pidfd);
        Self { pid, pidfd, group, sync, wait, net_devices: None, intermediate: None, failure: None }
    }

    /// What is to be moved when the child says that its namespaces are there.
    pub(crate) fn with_net_devices(self, net_devices: Option<NetDevices>) -> Self {
        Self { net_devices, ..self }
    }

    /// The process is the intermediate one of the child.
    pub(crate) fn with_intermediate(self, intermediate: Option<Intermediate>) -> Self {
        Self { intermediate, ..self }
    }

    /// Kills the child; [`Nascent::advance`] returns the error.
    pub(crate) fn fail(mut self, error: Error) -> Self {
        let _ = pidfd_send_signal(&self.pidfd, Signal::KILL);
        self.failure = Some(error);
        self
    }

    /// Takes over a waiting child of a process that died (`sync` from its descriptor).
    pub fn adopt(pid: i32, pidfd: OwnedFd, sync: OwnedFd, group: cgroup::Group) -> Self {
        let wait = Wait::PerhapsStart;
        Self { pid, pidfd, group, sync, wait, net_devices: None, intermediate: None, failure: None }
    }

    /// Readable when [`Nascent::advance`] has something to say (epoll it). Holding a duplicate keeps the child waiting.
    pub fn sync(&self) -> BorrowedFd<'_> {
        self.sync.as_fd()
    }

    /// Whether the pid is the child's own. The intermediate process is still to be reaped when this becomes true.
    pub fn is_cloned(&self) -> bool {
        self.intermediate.is_none()
    }

    /// Reads what the child sends; never blocks. A child that closed its end and has not ended yet is
    /// [`Progress::Pending`]: its end (`SIGCHLD`, the pidfd) is the next event.
    ///
    /// # Errors
    /// A failed step of the set-up or a failed execve; the child's end before execve. The child is gone or ends at
    /// once; it is still to be reaped. The group may hold one that an intermediate process cloned and could not hand
    /// over: it is to be killed.
    pub fn advance(&mut self) -> Result<Progress, Error> {
        if let Some(error) = self.failure.take() {
            return Err(error);
        }
        if let Err(error) = self.advance_intermediate() {
            // It may wait for what will not come.
            let _ = pidfd_send_signal(&self.pidfd, Signal::KILL);
            return Err(error);
        }
        if !self.is_cloned() {
            return Ok(Progress::Pending);
        }
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
                _ => self.ended(),
            },
        }
    }

    /// Reads what the intermediate process sends, until the child is cloned.
    fn advance_intermediate(&mut self) -> Result<(), Error> {
        while let Some(intermediate) = &mut self.intermediate {
            match sync::listen(self.sync.as_fd())? {
                Said::Nothing => return Ok(()),
                Said::Unmapped => {
                    let mappings = intermediate.mappings.take();
                    mappings.map_or(Ok(()), |mappings| write_maps(&mappings, self.pid))?;
                    // One that is gone already has sent why.
                    let _ = sync::go(self.sync.as_fd());
                }
                Said::Born(pid, pidfd) => self.cloned(pid, pidfd)?,
                Said::Failed(error) => return Err(error),
                Said::End | Said::NamespacesMade | Said::Made(_) | Said::Ready(_) => return self.ended().map(drop),
            }
        }
        Ok(())
    }

    /// The intermediate process cloned the child, which waits.
    fn cloned(&mut self, pid: i32, pidfd: OwnedFd) -> Result<(), Error> {
        (self.pid, self.pidfd) = (pid, pidfd);
        let Intermediate { intel_rdt, attach, .. } = self.intermediate.take().unwrap_or_default();
        if attach {
            self.group.attach(pid).map_err(|error| Error::system("place the command", std::io::Error::other(error)))?;
        }
        if let Some(rdt) = intel_rdt
            && let Err(error) = rdt.apply(pid)
        {
            rdt.undo();
            return Err(error);
        }
        // One that is gone already shows by its end.
        let _ = sync::go(self.sync.as_fd());
        Ok(())
    }

    /// Waits until [`Nascent::advance`] has something to report: for callers that may block.
    ///
    /// # Errors
    /// Of poll(2).
    pub fn wait(&self) -> Result<(), Error> {
        match poll(&mut [PollFd::new(&self.sync, PollFlags::IN)], None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(Error::system("wait for the container's process", errno)),
        }
        if self.wait != Wait::Over && sync::is_over(self.sync.as_fd()) {
            // Its descriptors are closed a moment before its end can be read.
            let moment = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
            let _ = poll(&mut [PollFd::new(&self.pidfd, PollFlags::IN)], Some(&moment));
        }
        Ok(())
    }

    /// Blocks until the pid is the child's own, and reaps the intermediate process.
    ///
    /// # Errors
    /// A step of the intermediate process failed; it is still to be reaped.
    pub fn wait_until_cloned(&mut self) -> Result<(), Error> {
        if self.is_cloned() {
            return Ok(());
        }
        let intermediate = self.pidfd.try_clone().during(|| "duplicate a pidfd")?;
        while !self.is_cloned() {
            self.wait()?;
            if let Err(error) = self.advance_intermediate() {
                let _ = pidfd_send_signal(&self.pidfd, Signal::KILL);
                return Err(error);
            }
        }
        waitid(WaitId::PidFd(intermediate.as_fd()), WaitIdOptions::EXITED)
            .map(drop)
            .during(|| "wait for the end of the intermediate process")
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

    /// The container will be started over its listening socket ([`Invocation::starter`](crate::Invocation)): it no
    /// longer ends with this process. To be called when what the starter needs to know is written.
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

    /// Neither ended nor about to. A process that ends closes its descriptors before its pidfd tells, so the kernel's
    /// flag (`PF_EXITING`, in proc_pid_stat(5)) is asked too.
    fn lives_on(&self) -> bool {
        const PF_EXITING: u32 = 4;
        let exiting = std::fs::read_to_string(format!("/proc/{}/stat", self.pid)).ok().is_none_or(|stat| {
            let flags = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(6)?.parse::<u32>().ok());
            flags.is_none_or(|flags| flags & PF_EXITING != 0)
        });
        let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
        !exiting && matches!(poll(&mut fds, Some(&Timespec::default())), Ok(0))
    }

    /// The child closed its end too early: an error once it has ended, a moment later, which gives the reason.
    fn ended(&self) -> Result<Progress, Error> {
        match poll(&mut [PollFd::new(&self.pidfd, PollFlags::IN)], Some(&Timespec::default())) {
            Ok(0) => Ok(Progress::Pending),
            _ => Err(self.ended_early()),
        }
    }

    fn ended_early(&self) -> Error {
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
