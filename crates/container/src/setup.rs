use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::{AsFd, BorrowedFd, OwnedFd},
    io::Errno,
    process::{Pid, Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid},
};
use syscall::process_stat::ProcessStat;

use crate::{
    Error, ErrorKind,
    error::During,
    id_mappings::IdMappings,
    intel_rdt::IntelRdt,
    net_devices::NetDevices,
    sync::{self, ChildMessage},
    user_namespace::write_maps,
};

/// A container or exec'd process that is being set up: a cloned child that sets itself up, then waits before execve.
///
/// Dropping it closes the parent's end of the socket: a child that still waits then ends, unless another process holds
/// a duplicate of [`ContainerSetup::sync`].
#[derive(Debug)]
pub struct ContainerSetup {
    /// The child's pid in the caller's PID namespace; that of its intermediate process until
    /// [`ContainerSetup::is_cloned`].
    pub pid: Pid,
    /// The pidfd of the process that `pid` names.
    pub pidfd: OwnedFd,
    /// The child's cgroup. Dropping it does not remove it: that is the caller's task.
    pub group: cgroup::Group,
    sync: OwnedFd,
    start: StartByte,
    net_devices: Option<NetDevices>,
    intermediate: Option<Intermediate>,
    /// A step of the parent that failed; the child was killed.
    failure: Option<Error>,
}

/// Work that the parent still has to do for an intermediate process and for the child that it clones.
#[derive(Debug, Default)]
pub(crate) struct Intermediate {
    /// The maps of the user namespace that it makes.
    pub(crate) mappings: Option<IdMappings>,
    /// The resource control of the child.
    pub(crate) intel_rdt: Option<IntelRdt>,
    /// Whether systemd has to move the child into its cgroup.
    pub(crate) attach: bool,
}

/// State of the start byte, which lets the child call execve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StartByte {
    /// It was not sent yet.
    NotSent,
    /// The previous monitor, which died, may have sent it.
    PerhapsSent,
    /// A child of exec needs none; it is still being set up.
    NotNeeded,
    /// It was sent or is not needed: the child may have called execve.
    Passed,
}

/// Progress of a child.
#[derive(Debug)]
pub enum Progress {
    /// Nothing has changed.
    Pending,
    /// Its namespaces exist, and its spec has hooks for the runtime to run now: it waits for
    /// [`ContainerSetup::continue_setup`].
    NamespacesCreated,
    /// It is set up, and waits for [`ContainerSetup::start`].
    Ready {
        /// The terminal's master side, where the process has one.
        terminal: Option<OwnedFd>,
    },
    /// Its execve succeeded.
    Executed,
}

impl ContainerSetup {
    /// `waits`: whether the child waits for a start byte.
    pub(crate) fn new(child: syscall::clone::Child, sync: OwnedFd, group: cgroup::Group, waits: bool) -> Self {
        let start = if waits { StartByte::NotSent } else { StartByte::NotNeeded };
        let (pid, pidfd) = (child.pid, child.pidfd);
        Self { pid, pidfd, group, sync, start, net_devices: None, intermediate: None, failure: None }
    }

    /// Sets the network devices to move once the child reports that its namespaces exist.
    pub(crate) fn with_net_devices(self, net_devices: Option<NetDevices>) -> Self {
        Self { net_devices, ..self }
    }

    /// Sets the work for an intermediate process; `Some`: the process is not the child but its intermediate one.
    pub(crate) fn with_intermediate(self, intermediate: Option<Intermediate>) -> Self {
        Self { intermediate, ..self }
    }

    /// Kills the child; [`ContainerSetup::advance`] returns the error.
    pub(crate) fn fail(mut self, error: Error) -> Self {
        let _ = pidfd_send_signal(&self.pidfd, Signal::KILL);
        self.failure = Some(error);
        self
    }

    /// Takes over a waiting child of a process that died; `sync` is a duplicate of that process's descriptor.
    pub fn adopt(pid: Pid, pidfd: OwnedFd, sync: OwnedFd, group: cgroup::Group) -> Self {
        let start = StartByte::PerhapsSent;
        Self { pid, pidfd, group, sync, start, net_devices: None, intermediate: None, failure: None }
    }

    /// Returns the parent's end of the socket, for epoll: readable when [`ContainerSetup::advance`] has something to
    /// report. Holding a duplicate keeps the child waiting.
    pub fn sync(&self) -> BorrowedFd<'_> {
        self.sync.as_fd()
    }

    /// Whether `pid` is the child's and not its intermediate process's. When this becomes true the intermediate process
    /// must still be reaped.
    pub fn is_cloned(&self) -> bool {
        self.intermediate.is_none()
    }

    /// Reads the child's messages; never blocks. A child that closed its end and has not exited yet is
    /// [`Progress::Pending`]: its exit (`SIGCHLD`, the pidfd) is the next event.
    ///
    /// # Errors
    /// A step of the setup or execve failed, or the child exited before execve. The child has exited or exits at once;
    /// the caller must reap it. The group may hold a process that an intermediate process cloned and could not hand
    /// over: the caller must kill it.
    pub fn advance(&mut self) -> Result<Progress, Error> {
        if let Some(error) = self.failure.take() {
            return Err(error);
        }
        if let Err(error) = self.advance_intermediate() {
            // It may wait for a message that will never be sent.
            let _ = pidfd_send_signal(&self.pidfd, Signal::KILL);
            return Err(error);
        }
        if !self.is_cloned() {
            return Ok(Progress::Pending);
        }
        match sync::receive(self.sync.as_fd())? {
            ChildMessage::Pending => Ok(Progress::Pending),
            ChildMessage::Failed(error) => Err(error),
            ChildMessage::NamespacesCreated => match self.net_devices.take() {
                Some(devices) => self.move_devices(&devices).map(|()| Progress::Pending),
                None => Ok(Progress::NamespacesCreated),
            },
            ChildMessage::NeedsMaps | ChildMessage::Cloned(..) | ChildMessage::Namespaces(_) => Err(self.exit_error()),
            ChildMessage::Ready(terminal) => {
                if self.start == StartByte::NotNeeded {
                    self.start = StartByte::Passed;
                }
                Ok(Progress::Ready { terminal })
            }
            ChildMessage::Closed => match self.start {
                StartByte::Passed => Ok(Progress::Executed),
                StartByte::PerhapsSent if self.is_alive() => Ok(Progress::Executed),
                _ => self.closed_early(),
            },
        }
    }

    /// Reads the messages of the intermediate process, until the child is cloned.
    fn advance_intermediate(&mut self) -> Result<(), Error> {
        while let Some(intermediate) = &mut self.intermediate {
            match sync::receive(self.sync.as_fd())? {
                ChildMessage::Pending => return Ok(()),
                ChildMessage::NeedsMaps => {
                    let mappings = intermediate.mappings.take();
                    mappings.map_or(Ok(()), |mappings| write_maps(&mappings, self.pid))?;
                    // One that has exited already has sent its error.
                    let _ = sync::send_go(self.sync.as_fd());
                }
                ChildMessage::Cloned(pid, pidfd) => self.take_child(pid, pidfd)?,
                ChildMessage::Failed(error) => return Err(error),
                ChildMessage::Closed
                | ChildMessage::NamespacesCreated
                | ChildMessage::Namespaces(_)
                | ChildMessage::Ready(_) => return self.closed_early().map(drop),
            }
        }
        Ok(())
    }

    /// Takes over the child that the intermediate process cloned, and lets it continue.
    fn take_child(&mut self, pid: Pid, pidfd: OwnedFd) -> Result<(), Error> {
        (self.pid, self.pidfd) = (pid, pidfd);
        let Intermediate { intel_rdt, attach, .. } = self.intermediate.take().unwrap_or_default();
        if attach {
            self.group
                .attach(pid)
                .map_err(|error| Error::system("move the process into its cgroup", std::io::Error::other(error)))?;
        }
        if let Some(rdt) = intel_rdt
            && let Err(error) = rdt.apply(pid)
        {
            rdt.undo();
            return Err(error);
        }
        // The exit of one that is gone already is the next event.
        let _ = sync::send_go(self.sync.as_fd());
        Ok(())
    }

    /// Waits until [`ContainerSetup::advance`] has something to report; for callers that may block.
    ///
    /// # Errors
    /// Those of poll(2).
    pub fn wait(&self) -> Result<(), Error> {
        match poll(&mut [PollFd::new(&self.sync, PollFlags::IN)], None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(Error::system("wait for the container's process", errno)),
        }
        if self.start != StartByte::Passed && sync::is_closed(self.sync.as_fd()) {
            // An exiting process closes its descriptors shortly before its pidfd becomes readable.
            let timeout = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
            let _ = poll(&mut [PollFd::new(&self.pidfd, PollFlags::IN)], Some(&timeout));
        }
        Ok(())
    }

    /// Blocks until `pid` is the child's, and reaps the intermediate process.
    ///
    /// # Errors
    /// A step of the intermediate process failed; the caller must reap it.
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

    fn move_devices(&mut self, devices: &NetDevices) -> Result<(), Error> {
        match devices.move_to(self.pid, &self.pidfd) {
            Ok(()) => self.continue_setup(),
            Err(error) => {
                // It waits for a message that will never be sent.
                let _ = pidfd_send_signal(&self.pidfd, Signal::KILL);
                Err(error)
            }
        }
    }

    /// Lets the child call execve. Does nothing for a child of [`exec`](crate::exec()).
    ///
    /// # Errors
    /// The child has exited.
    pub fn start(&mut self) -> Result<(), Error> {
        if matches!(self.start, StartByte::NotNeeded | StartByte::Passed) {
            return Ok(());
        }
        match sync::send_start(self.sync.as_fd()) {
            Ok(()) => {
                self.start = StartByte::Passed;
                Ok(())
            }
            // It may have sent its error.
            Err(_) => match self.advance() {
                Err(error) => Err(error),
                Ok(_) => Err(self.exit_error()),
            },
        }
    }

    /// Lets the child continue after [`Progress::NamespacesCreated`], when the runtime has done its part of the setup.
    ///
    /// # Errors
    /// The child has exited.
    pub fn continue_setup(&mut self) -> Result<(), Error> {
        self.send(sync::send_go)
    }

    /// Makes the child wait on its listening socket ([`Invocation::start_listener`](crate::Invocation)), so that it no
    /// longer ends with this process. Call this when everything that the starting process needs is on disk.
    ///
    /// # Errors
    /// The child has exited.
    pub fn detach(&mut self) -> Result<(), Error> {
        self.send(sync::send_listen)
    }

    fn send(&mut self, message: impl FnOnce(BorrowedFd<'_>) -> Result<(), rustix::io::Errno>) -> Result<(), Error> {
        match message(self.sync.as_fd()) {
            Ok(()) => Ok(()),
            // It may have sent its error.
            Err(_) => match self.advance() {
                Err(error) => Err(error),
                Ok(_) => Err(self.exit_error()),
            },
        }
    }

    /// Whether the process has neither exited nor begun to. An exiting process closes its descriptors before its pidfd
    /// becomes readable, so the kernel's flag (`PF_EXITING`, in proc_pid_stat(5)) is read as well.
    fn is_alive(&self) -> bool {
        let exiting = ProcessStat::read(self.pid).map_or(true, |stat| stat.is_exiting());
        let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
        !exiting && matches!(poll(&mut fds, Some(&Timespec::default())), Ok(0))
    }

    /// Handles a child that closed its end too early: an error with the reason once it has exited, pending until then.
    fn closed_early(&self) -> Result<Progress, Error> {
        match poll(&mut [PollFd::new(&self.pidfd, PollFlags::IN)], Some(&Timespec::default())) {
            Ok(0) => Ok(Progress::Pending),
            _ => Err(self.exit_error()),
        }
    }

    fn exit_error(&self) -> Error {
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
        Error::new(ErrorKind::System, message)
    }
}
