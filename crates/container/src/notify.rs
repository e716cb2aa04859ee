//! `linux.seccomp.listenerPath`: the agent that answers calls whose rule says `SCMP_ACT_NOTIFY`.
//!
//! ```text
//! caller                    child                                   courier, a thread of the child
//!   connects to the agent
//!   clones ────────────────▶ sets itself up, waits, is started
//!                            starts the courier ───────────────────▶ waits; no filter is upon it
//!                            loads the filter, leaves the listener ▶ sends it to the agent
//!                            waits without a call  ◀───────────────── it is sent
//!                            execve, which ends the courier
//! ```
//!
//! Once its filter is loaded the child may be able to call nothing: any call can be refused, or wait for an agent that
//! does not have the listener yet. The courier was started before, so the filter is not upon it. It is the one thread
//! that a child of ours ever has, and no process: a process would be the container's, to be reaped by its program.
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
};
use serde_json::json;
use syscall::descriptor_cell::DescriptorCell;

use crate::{Error, error::During};

/// How often the courier looks for the listener; loading a filter takes about as long.
const LOOK: Duration = Duration::from_micros(50);

/// Who answers, and what it is told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Agent {
    /// Absolute path of its listening stream socket, as the calling process sees it.
    pub path: String,
    /// Told to it as it is.
    pub metadata: String,
    /// The container it is for; of a container that is being created without the pid.
    pub state: oci::State,
}

/// An agent that was checked.
#[derive(Debug)]
pub(crate) struct Notify {
    agent: Agent,
    socket: Option<OwnedFd>,
}

impl Notify {
    pub(crate) fn parse(agent: Agent) -> Result<Self, Error> {
        let path = &agent.path;
        if !path.starts_with('/') || SocketAddrUnix::new(path.as_str()).is_err() {
            let message = format!("linux.seccomp.listenerPath: {path:?} is not the absolute path of a socket");
            return Err(Error::invalid(message));
        }
        Ok(Self { agent, socket: None })
    }

    /// In the caller, which may serve others: an agent whose queue is full is an error and not waited for.
    pub(crate) fn connect(&mut self) -> Result<(), Error> {
        let path = self.agent.path.as_str();
        self.socket = Some(try_connect(path).during(|| format!("connect to the seccomp agent {path:?}"))?);
        Ok(())
    }

    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.socket.as_ref().map(AsFd::as_fd)
    }

    /// What the agent is told with the listener: `pid` is that of the process as the runtime knows it.
    pub(crate) fn message(&self, pid: i32) -> Vec<u8> {
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

    /// Last before the filter is loaded. The agent was there when the container was created; by now it may not be.
    pub(crate) fn start_courier(&self, message: Vec<u8>) -> Result<Courier, Error> {
        let path = &self.agent.path;
        let socket = self.descriptor().ok_or(Errno::NOTCONN).during(|| format!("find the seccomp agent {path:?}"))?;
        let mut fds = [PollFd::new(&socket, PollFlags::RDHUP)];
        poll(&mut fds, Some(&Timespec::default())).during(|| format!("ask for the seccomp agent {path:?}"))?;
        if !fds[0].revents().is_empty() {
            return Err(Error::system(format!("reach the seccomp agent {path:?}: it hung up"), Errno::PIPE));
        }
        let socket = socket.try_clone_to_owned().during(|| "duplicate the seccomp agent's socket")?;
        let desk = Arc::new(Desk::default());
        let shared = Arc::clone(&desk);
        thread::Builder::new()
            .stack_size(64 << 10)
            .spawn(move || shared.deliver(UnixStream::from(socket), &message))
            .during(|| "start the thread that sends the seccomp listener")?;
        Ok(Courier { desk, path: path.clone() })
    }
}

fn try_connect(path: &str) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    fcntl_setfl(&socket, OFlags::empty())?;
    Ok(socket)
}

/// What child and courier share.
#[derive(Debug, Default)]
struct Desk {
    listener: DescriptorCell,
    sent: OnceLock<Result<(), Errno>>,
}

impl Desk {
    fn deliver(&self, agent: UnixStream, message: &[u8]) {
        let listener = loop {
            match self.listener.take() {
                Some(listener) => break listener,
                None => thread::sleep(LOOK),
            }
        };
        let sent = send(agent, listener.as_fd(), message);
        // Where it was not sent nobody has the listener then, and the kernel refuses what the filter would have asked.
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
    // The child's own duplicate stays open until execve, which may wait for this agent: who reads to the end must find
    // it.
    let whole = agent.write_all(&message[sent..]).and_then(|()| agent.shutdown(Shutdown::Both));
    whole.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

/// The thread that brings the listener to the agent.
pub(crate) struct Courier {
    desk: Arc<Desk>,
    path: String,
}

impl Courier {
    /// With the filter upon the caller: nothing is called here.
    pub(crate) fn deliver(self, listener: OwnedFd) -> Result<(), Error> {
        self.desk.listener.put(listener);
        let sent = loop {
            match self.desk.sent.get() {
                Some(sent) => break *sent,
                None => std::hint::spin_loop(),
            }
        };
        sent.during(|| format!("send the seccomp listener to the agent {:?}", self.path))
    }
}
