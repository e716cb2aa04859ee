//! The protocol between parent and child, over one pair of `SOCK_SEQPACKET` sockets:
//!
//! ```text
//! parent                                   child (of create)
//!   │ ◀──────── E kind message ─────────────│  a step failed: it ends
//!   │ ───────── G ─────────────────────────▶│  go: placed and mapped (only with a user namespace, or a systemd unit)
//!   │ ◀──────── N ──────────────────────────│  namespaces made; waits (only where the runtime has work then)
//!   │ ───────── G ─────────────────────────▶│  go: hooks have run, network devices are moved
//!   │ ◀──────── R [terminal] ───────────────│  set up; waits
//!   │ ───────── L ─────────────────────────▶│  listen: another process starts it (only with a listening socket)
//!   │ ───────── S ─────────────────────────▶│  start, here or over a connection to the listening socket
//!   │ ◀──────── E kind message ─────────────│  a last step or execve failed: it ends
//!   │ ◀──────── end of file ────────────────│  execve closed the child's end: the container's program runs
//! ```
//!
//! An intermediate process ([`crate::intermediate`]) uses the same pair before the child that it clones; that child
//! first waits for its own `G`:
//!
//! ```text
//! parent                                   intermediate process
//!   │ ◀──────── U ──────────────────────────│  unmapped: in its new user namespace; waits
//!   │ ───────── G ─────────────────────────▶│  go: the maps are written
//!   │ ◀──────── B pid [pidfd] ──────────────│  cloned: the child of create or exec, which waits; then it ends
//!   │ ◀──────── E kind message ─────────────│  or a step failed: it ends
//! ```
//!
//! The child that makes the namespaces of a pod ([`crate::pod_namespaces`]) waits for `G` and answers with
//! `M [descriptors]` or `E`.
//!
//! The child of exec does not wait for `S`: the end of file follows `R`.
//!
//! After `L` the child no longer needs this parent: it accepts connections on the listening socket until one sends `S`,
//! and reports the result of the start over that connection.
//!
//! The child waits as long as *any* process holds the parent's end. A second holder therefore lets a waiting container
//! outlive its monitor. When the last holder closes it, the child reads the end of file and ends.

use std::cell::OnceCell;
use std::io::{IoSlice, IoSliceMut};
use std::mem::{ManuallyDrop, MaybeUninit};

use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    io::Errno,
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
        SendFlags, SocketFlags, SocketType, accept_with, recvmsg, sendmsg, socketpair,
    },
    process::Pid,
};

use syscall::clone::Child;

use crate::{Error, ErrorKind, error::During};

/// Maximum length of an error message in bytes; a longer one is truncated.
const MESSAGE_MAX: usize = 4096;

const READY: u8 = b'R';
const FAILED: u8 = b'E';
const START: u8 = b'S';
const GO: u8 = b'G';
const NAMESPACES: u8 = b'N';
const LISTEN: u8 = b'L';
const NEEDS_MAPS: u8 = b'U';
const CLONED: u8 = b'B';
const NAMESPACE_FDS: u8 = b'M';

/// Maximum number of descriptors in one message.
const FDS_MAX: usize = 4;

/// Makes the socket pair and returns the parent's end and the child's end.
pub(crate) fn pair() -> Result<(OwnedFd, OwnedFd), Error> {
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).during(|| "make a socket pair")
}

/// A message from the child.
pub(crate) enum ChildMessage {
    /// No message has arrived yet.
    Pending,
    /// The child's namespaces exist; it waits for `G`.
    NamespacesCreated,
    /// The intermediate process is in a new user namespace without maps; it waits for `G`.
    NeedsMaps,
    /// The intermediate process cloned the child: its pid and pidfd.
    Cloned(Pid, OwnedFd),
    /// The namespaces of a pod were made.
    Namespaces(Vec<OwnedFd>),
    /// The child is set up; the terminal's master side, where it has a terminal.
    Ready(Option<OwnedFd>),
    /// A step failed and the child ends.
    Failed(Error),
    /// The child's end is closed.
    Closed,
}

/// Reads one message; never blocks.
pub(crate) fn receive(parent: BorrowedFd<'_>) -> Result<ChildMessage, Error> {
    let mut data = [0u8; MESSAGE_MAX + 2];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let length = loop {
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        match recvmsg(parent, &mut [IoSliceMut::new(&mut data)], &mut ancillary, flags) {
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(ChildMessage::Pending),
            Err(Errno::CONNRESET) => return Ok(ChildMessage::Closed),
            result => break result.during(|| "read from the container's child")?.bytes,
        }
    };
    let mut fds: Vec<OwnedFd> = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            fds.extend(received);
        }
    }
    if let [NAMESPACE_FDS] = &data[..length] {
        return Ok(ChildMessage::Namespaces(fds));
    }
    let fd = fds.into_iter().next();
    match &data[..length] {
        [] => Ok(ChildMessage::Closed),
        [READY, ..] => Ok(ChildMessage::Ready(fd)),
        [NEEDS_MAPS] => Ok(ChildMessage::NeedsMaps),
        [CLONED, a, b, c, d] => match (Pid::from_raw(i32::from_ne_bytes([*a, *b, *c, *d])), fd) {
            (Some(pid), Some(fd)) => Ok(ChildMessage::Cloned(pid, fd)),
            _ => Err(Error::system("receive the pidfd of the container's process", Errno::BADF)),
        },
        [NAMESPACES, ..] => Ok(ChildMessage::NamespacesCreated),
        [FAILED, kind, message @ ..] => {
            let kind = match kind {
                b'I' => ErrorKind::Invalid,
                b'N' => ErrorKind::NotFound,
                // `C`: sent by the child of an older version, which did not distinguish the two.
                b'X' | b'C' => ErrorKind::NotExecutable,
                b'W' => ErrorKind::WorkingDirectory,
                b'E' => ErrorKind::NotRunning,
                _ => ErrorKind::System,
            };
            Ok(ChildMessage::Failed(Error::new(kind, String::from_utf8_lossy(message))))
        }
        other => {
            let message = format!("read from the container's child: unknown message {other:?}");
            Err(Error::new(ErrorKind::System, message))
        }
    }
}

/// Reports whether the other end is closed and everything it sent was read; never blocks.
pub(crate) fn is_closed(socket: BorrowedFd<'_>) -> bool {
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    !matches!(rustix::net::recv(socket, &mut [0u8; 1], flags), Ok((1.., _)) | Err(Errno::AGAIN | Errno::INTR))
}

/// Reports whether the other end has read everything that was sent to it (`SIOCOUTQ`, unix(7)).
pub(crate) fn is_read(socket: BorrowedFd<'_>) -> Result<bool, Error> {
    let unread = syscall::socket_queue::unread_by_peer(socket);
    unread.map(|bytes| bytes == 0).during(|| "check whether the container has read the start request")
}

/// Sends the start byte.
pub(crate) fn send_start(parent: BorrowedFd<'_>) -> Result<(), Errno> {
    send_byte(parent, START)
}

/// Lets a child continue that waits for a step of its parent.
pub(crate) fn send_go(parent: BorrowedFd<'_>) -> Result<(), Errno> {
    send_byte(parent, GO)
}

/// Lets the child wait for its start on its listening socket.
pub(crate) fn send_listen(parent: BorrowedFd<'_>) -> Result<(), Errno> {
    send_byte(parent, LISTEN)
}

fn send_byte(socket: BorrowedFd<'_>, byte: u8) -> Result<(), Errno> {
    loop {
        match rustix::net::send(socket, &[byte], SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Err(Errno::INTR) => {}
            result => return result.map(drop),
        }
    }
}

/// Waits for one byte; `None`: the other end is closed.
fn receive_byte(socket: BorrowedFd<'_>) -> Option<u8> {
    let mut byte = [0u8];
    loop {
        match rustix::net::recv(socket, &mut byte, RecvFlags::empty()) {
            Err(Errno::INTR) => {}
            Ok((1, _)) => return Some(byte[0]),
            _ => return None,
        }
    }
}

/// The child's end of the socket pair.
pub(crate) struct ChildEnd {
    socket: OwnedFd,
    /// A listening socket over which another process may start it.
    listener: Option<OwnedFd>,
    /// The connection that the start byte came over, if that was one to the listening socket.
    starter: OnceCell<ManuallyDrop<OwnedFd>>,
}

impl ChildEnd {
    pub(crate) fn new(socket: OwnedFd, listener: Option<OwnedFd>) -> Self {
        Self { socket, listener, starter: OnceCell::new() }
    }

    /// Returns the descriptors that the child must keep open.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        [self.socket.as_fd()].into_iter().chain(self.listener.as_ref().map(AsFd::as_fd))
    }

    /// Waits for the parent's `G`.
    pub(crate) fn wait_for_go(&self) -> Result<(), Error> {
        match receive_byte(self.socket.as_fd()) {
            Some(GO) => Ok(()),
            _ => Err(Error::system("wait for the runtime's part of the setup: the runtime ended", Errno::PIPE)),
        }
    }

    /// Reports that the namespaces exist, and waits until the runtime has done its part of the setup.
    pub(crate) fn report_namespaces(&self) -> Result<(), Error> {
        send_byte(self.socket.as_fd(), NAMESPACES).during(|| "report the new namespaces to the parent")?;
        self.wait_for_go()
    }

    /// Reports a new user namespace, and waits until its maps are written.
    pub(crate) fn wait_for_maps(&self) -> Result<(), Error> {
        send_byte(self.socket.as_fd(), NEEDS_MAPS)
            .during(|| "request the maps of the user namespace from the parent")?;
        self.wait_for_go()
    }

    /// Hands the cloned child over to the parent.
    pub(crate) fn send_cloned(&self, child: &Child) -> Result<(), Error> {
        let [a, b, c, d] = child.pid.as_raw_pid().to_ne_bytes();
        self.send_with(&[CLONED, a, b, c, d], &[child.pidfd.as_fd()])
            .during(|| "hand the container's process over to the parent")
    }

    /// Hands namespaces over to the parent, at most [`FDS_MAX`].
    pub(crate) fn send_namespaces(&self, files: &[BorrowedFd<'_>]) -> Result<(), Error> {
        self.send_with(&[NAMESPACE_FDS], files).during(|| "hand the namespaces over to the parent")
    }

    /// Reports that the child is set up.
    pub(crate) fn send_ready(&self, terminal: Option<BorrowedFd<'_>>) -> Result<(), Error> {
        self.send_with(&[READY], terminal.as_slice()).during(|| "report to the parent that the container is set up")
    }

    fn send_with(&self, data: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            ancillary.push(SendAncillaryMessage::ScmRights(fds));
        }
        sendmsg(&self.socket, &[IoSlice::new(data)], &mut ancillary, SendFlags::NOSIGNAL).map(drop)
    }

    /// Waits for the start byte; `false`: no process is left that could send it.
    pub(crate) fn wait_for_start(&self) -> bool {
        match (receive_byte(self.socket.as_fd()), &self.listener) {
            (Some(START), _) => true,
            (Some(LISTEN), Some(listener)) => self.accept(listener.as_fd()),
            _ => false,
        }
    }

    /// Accepts connections until one sends the start byte. A connection that sends nothing or something else is
    /// ignored.
    fn accept(&self, listener: BorrowedFd<'_>) -> bool {
        loop {
            match accept_with(listener, SocketFlags::CLOEXEC) {
                // A connection that is closed by now has withdrawn its request: the container was frozen.
                Ok(starter) if receive_byte(starter.as_fd()) == Some(START) && !is_closed(starter.as_fd()) => {
                    return self.starter.set(ManuallyDrop::new(starter)).is_ok();
                }
                Ok(_) | Err(Errno::INTR | Errno::CONNABORTED | Errno::NFILE | Errno::NOMEM) => {}
                Err(_) => return false,
            }
        }
    }

    /// Sends the error to the process that waits for the child. If no process waits any longer, the error is lost.
    pub(crate) fn send_failure(&self, error: &Error) {
        let kind = match error.kind() {
            ErrorKind::Invalid => b'I',
            ErrorKind::NotFound => b'N',
            ErrorKind::NotExecutable => b'X',
            ErrorKind::WorkingDirectory => b'W',
            ErrorKind::NotRunning => b'E',
            ErrorKind::System => b'S',
        };
        let message = error.message().as_bytes();
        let mut data = vec![FAILED, kind];
        data.extend_from_slice(&message[..message.len().min(MESSAGE_MAX)]);
        let receiver = self.starter.get().map_or(&self.socket, |starter| starter);
        let _ = rustix::net::send(receiver, &data, SendFlags::NOSIGNAL);
    }
}

impl AsFd for ChildEnd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(parent: &OwnedFd) -> Error {
        match receive(parent.as_fd()) {
            Ok(ChildMessage::Failed(error)) => error,
            _ => panic!("no error arrived"),
        }
    }

    #[test]
    fn the_kind_of_an_error_is_carried_to_the_parent() {
        let (parent, child) = pair().expect("a socket pair");
        let child = ChildEnd::new(child, None);
        let kinds = [
            ErrorKind::Invalid,
            ErrorKind::NotFound,
            ErrorKind::NotExecutable,
            ErrorKind::WorkingDirectory,
            ErrorKind::NotRunning,
            ErrorKind::System,
        ];
        for kind in kinds {
            child.send_failure(&Error::new(kind, "exec \"x\": reason"));
            let error = received(&parent);
            assert_eq!((error.kind(), error.message()), (kind, "exec \"x\": reason"));
        }
    }

    #[test]
    fn the_child_of_an_older_version_is_understood() {
        let (parent, child) = pair().expect("a socket pair");
        rustix::net::send(&child, b"ECexec: reason", SendFlags::NOSIGNAL).expect("send");
        let error = received(&parent);
        assert_eq!((error.kind(), error.message()), (ErrorKind::NotExecutable, "exec: reason"));
    }
}
