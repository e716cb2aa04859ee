//! `linux.seccomp.listenerPath`: the agent that handles system calls with the action `SCMP_ACT_NOTIFY`.
//!
//! ```text
//! caller                    child                                   courier, a thread of the child
//!   connects to the agent
//!   clones ────────────────▶ sets itself up, waits, is started
//!                            starts the courier ───────────────────▶ waits; the filter does not apply to it
//!                            loads the filter, passes the listener ▶ sends it to the agent
//!                            spins without system calls ◀─────────── reports that it was sent
//!                            execve, which ends the courier
//! ```
//!
//! Once its filter is loaded, the child may not be able to make any system call: each can be refused, or wait for an
//! agent that does not have the listener yet. The courier is started before, so the filter does not apply to it. It is
//! the only thread that a child ever starts. It cannot be a process: that would belong to the container, whose program
//! would have to reap it.
//!
//! Source: runtime-spec config-linux.md, "The Container Process State"; `seccomp_unotify(2)`.

use std::{
    io::{IoSlice, Write},
    mem::MaybeUninit,
    net::Shutdown,
    os::unix::net::UnixStream,
    sync::{Arc, OnceLock},
    thread,
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{OFlags, fcntl_setfl},
    io::Errno,
    net::{
        AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
        connect, sendmsg, socket_with,
    },
    process::Pid,
};
use serde_json::json;
use syscall::descriptor_cell::DescriptorCell;

use crate::{Error, error::During};

/// Interval at which the courier polls for the listener; loading a filter takes about as long.
const POLL_INTERVAL: Duration = Duration::from_micros(50);

/// A seccomp agent, and the contents of the message to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeccompAgent {
    /// Absolute path of its listening stream socket, as the calling process sees it.
    pub path: String,
    /// Opaque metadata that is passed to the agent (`listenerMetadata`).
    pub metadata: String,
    /// The container's state; without the pid for a container that is being created.
    pub state: oci::State,
}

/// A checked agent, and the connection to it.
#[derive(Debug)]
pub(crate) struct Notify {
    agent: SeccompAgent,
    socket: Option<OwnedFd>,
}

impl Notify {
    pub(crate) fn parse(agent: SeccompAgent) -> Result<Self, Error> {
        let path = &agent.path;
        if !path.starts_with('/') || SocketAddrUnix::new(path.as_str()).is_err() {
            let message = format!("linux.seccomp.listenerPath: {path:?} is not the absolute path of a socket");
            return Err(Error::invalid(message));
        }
        Ok(Self { agent, socket: None })
    }

    /// Connects to the agent. Runs in the caller, which may serve other containers: if the agent's queue is full this
    /// fails and does not wait.
    pub(crate) fn connect(&mut self) -> Result<(), Error> {
        let path = self.agent.path.as_str();
        self.socket = Some(try_connect(path).during(|| format!("connect to the seccomp agent {path:?}"))?);
        Ok(())
    }

    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.socket.as_ref().map(AsFd::as_fd)
    }

    /// Builds the message that is sent with the listener; `pid` is the process's in the runtime's PID namespace.
    pub(crate) fn message(&self, pid: Pid) -> Vec<u8> {
        let pid = pid.as_raw_pid();
        let mut state = self.agent.state.clone();
        if state.pid == 0 {
            (state.pid, state.status) = (pid, oci::Status::Created);
        }
        let message = json!({
            "ociVersion": state.oci_version,
            "fds": ["seccompFd"],
            "pid": pid,
            "metadata": self.agent.metadata,
            "state": state,
        });
        message.to_string().into_bytes()
    }

    /// Starts the courier, last before the filter is loaded. The agent accepted the connection when the container was
    /// created, but may have exited since.
    pub(crate) fn start_courier(&self, message: Vec<u8>) -> Result<Courier, Error> {
        let path = &self.agent.path;
        let socket = self.descriptor().ok_or(Errno::NOTCONN).during(|| format!("find the seccomp agent {path:?}"))?;
        let mut fds = [PollFd::new(&socket, PollFlags::RDHUP)];
        poll(&mut fds, Some(&Timespec::default())).during(|| format!("poll the seccomp agent {path:?}"))?;
        if !fds[0].revents().is_empty() {
            return Err(Error::system(format!("reach the seccomp agent {path:?}: it hung up"), Errno::PIPE));
        }
        let socket = socket.try_clone_to_owned().during(|| "duplicate the seccomp agent's socket")?;
        let handover = Arc::new(Handover::default());
        let shared = Arc::clone(&handover);
        thread::Builder::new()
            .stack_size(64 << 10)
            .spawn(move || shared.deliver(UnixStream::from(socket), &message))
            .during(|| "start the thread that sends the seccomp listener")?;
        Ok(Courier { handover, path: path.clone() })
    }
}

fn try_connect(path: &str) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    fcntl_setfl(&socket, OFlags::empty())?;
    Ok(socket)
}

/// State that is shared by child and courier.
#[derive(Debug, Default)]
struct Handover {
    listener: DescriptorCell,
    sent: OnceLock<Result<(), Errno>>,
}

impl Handover {
    fn deliver(&self, agent: UnixStream, message: &[u8]) {
        let listener = loop {
            match self.listener.take() {
                Some(listener) => break listener,
                None => thread::sleep(POLL_INTERVAL),
            }
        };
        let sent = send(agent, listener.as_fd(), message);
        // If sending failed, no process holds the listener after this, and notified system calls fail with ENOSYS.
        drop(listener);
        let _ = self.sent.set(sent);
    }
}

fn send(mut agent: UnixStream, listener: BorrowedFd<'_>, message: &[u8]) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let fds = [listener];
    ancillary.push(SendAncillaryMessage::ScmRights(&fds));
    let sent = loop {
        match sendmsg(&agent, &[IoSlice::new(message)], &mut ancillary, SendFlags::NOSIGNAL) {
            Err(Errno::INTR) => {}
            result => break result?,
        }
    };
    // The child's own duplicate of the socket stays open until execve, which may wait for this agent. Shut the
    // connection down, so that an agent that reads to the end of file sees it.
    let complete = agent.write_all(&message[sent..]).and_then(|()| agent.shutdown(Shutdown::Both));
    complete.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

/// The thread that sends the listener to the agent.
pub(crate) struct Courier {
    handover: Arc<Handover>,
    path: String,
}

impl Courier {
    /// Passes the listener on and waits until it is sent. Makes no system call, because the filter applies to this
    /// thread.
    pub(crate) fn deliver(self, listener: OwnedFd) -> Result<(), Error> {
        self.handover.listener.put(listener);
        let sent = loop {
            match self.handover.sent.get() {
                Some(sent) => break *sent,
                None => std::hint::spin_loop(),
            }
        };
        sent.during(|| format!("send the seccomp listener to the agent {:?}", self.path))
    }
}
