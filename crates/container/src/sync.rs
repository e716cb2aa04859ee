//! What parent and child say to each other, over one pair of `SOCK_SEQPACKET` sockets:
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
//!   │ ◀──────── end of file ────────────────│  execve closed its end: the command runs
//! ```
//!
//! An intermediate process ([`crate::forerunner`]) speaks to the parent over the same pair, before the child that it
//! clones, which waits for its `G` first:
//!
//! ```text
//! parent                                   intermediate process
//!   │ ◀──────── U ──────────────────────────│  unmapped: in its new user namespace; waits
//!   │ ───────── G ─────────────────────────▶│  go: the maps are written
//!   │ ◀──────── B pid [pidfd] ──────────────│  born: the child of create or exec, which waits; the intermediate
//!   process ends │ ◀──────── E kind message ─────────────│  or a step failed: it ends
//! ```
//!
//! Who makes the namespaces of a pod ([`crate::owned_namespaces`]) waits for `G` and says `M [descriptors]` or `E`.
//!
//! The child of exec does not wait: `R` and the end of file follow each other.
//!
//! After `L` the child no longer needs this parent: it accepts connections on the listening socket until one says `S`;
//! from then on it speaks to that one.
//!
//! The child waits as long as *any* process holds the parent's end, so a second holder is what lets a waiting container
//! outlive its monitor; when the last one is gone the child reads the end of file and ends.

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
};

use syscall::clone::Child;

use crate::{Error, ErrorKind, error::During};

/// Longest message of an error; a longer one is cut.
const MESSAGE_MAX: usize = 4096;

const READY: u8 = b'R';
const FAILED: u8 = b'E';
const START: u8 = b'S';
const GO: u8 = b'G';
const NAMESPACES: u8 = b'N';
const LISTEN: u8 = b'L';
const UNMAPPED: u8 = b'U';
const BORN: u8 = b'B';
const MADE: u8 = b'M';

/// Most descriptors of one message.
const FDS_MAX: usize = 4;

/// The two ends: the parent's and the child's.
pub(crate) fn pair() -> Result<(OwnedFd, OwnedFd), Error> {
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).during(|| "make a socket pair")
}

/// What came from the child.
pub(crate) enum Said {
    /// Nothing yet.
    Nothing,
    /// Its namespaces are there; it waits for `go`.
    NamespacesMade,
    /// It is in a new user namespace, and waits for `go`.
    Unmapped,
    /// What it ran ahead for: pid and pidfd.
    Born(i32, OwnedFd),
    /// What it made.
    Made(Vec<OwnedFd>),
    /// It is set up.
    Ready(Option<OwnedFd>),
    /// It failed and ends.
    Failed(Error),
    /// Its end is closed.
    End,
}

/// Reads one message; never blocks.
pub(crate) fn listen(parent: BorrowedFd<'_>) -> Result<Said, Error> {
    let mut data = [0u8; MESSAGE_MAX + 2];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let got = loop {
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        match recvmsg(parent, &mut [IoSliceMut::new(&mut data)], &mut ancillary, flags) {
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(Said::Nothing),
            Err(Errno::CONNRESET) => return Ok(Said::End),
            result => break result.during(|| "read from the container's child")?,
        }
    };
    let mut fds: Vec<OwnedFd> = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            fds.extend(received);
        }
    }
    if let [MADE] = &data[..got.bytes] {
        return Ok(Said::Made(fds));
    }
    let fd = fds.into_iter().next();
    match &data[..got.bytes] {
        [] => Ok(Said::End),
        [READY, ..] => Ok(Said::Ready(fd)),
        [UNMAPPED] => Ok(Said::Unmapped),
        [BORN, a, b, c, d] => match fd {
            Some(fd) => Ok(Said::Born(i32::from_ne_bytes([*a, *b, *c, *d]), fd)),
            None => Err(Error::system("receive the pidfd of the container's process", Errno::BADF)),
        },
        [NAMESPACES, ..] => Ok(Said::NamespacesMade),
        [FAILED, kind, message @ ..] => {
            let kind = match kind {
                b'I' => ErrorKind::Invalid,
                b'C' => ErrorKind::Command,
                b'E' => ErrorKind::Ended,
                _ => ErrorKind::System,
            };
            Ok(Said::Failed(Error { kind, message: String::from_utf8_lossy(message).into_owned() }))
        }
        other => Err(Error { kind: ErrorKind::System, message: format!("the container's child said {other:?}") }),
    }
}

/// Whether nothing was sent that is not read, and the other end is closed; never blocks.
pub(crate) fn is_over(socket: BorrowedFd<'_>) -> bool {
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    !matches!(rustix::net::recv(socket, &mut [0u8; 1], flags), Ok((1.., _)) | Err(Errno::AGAIN | Errno::INTR))
}

/// Whether the other end has read all that was sent to it (`SIOCOUTQ`, unix(7)).
pub(crate) fn is_read(socket: BorrowedFd<'_>) -> Result<bool, Error> {
    let unread = syscall::socket_queue::unread_by_peer(socket);
    unread.map(|bytes| bytes == 0).during(|| "ask whether the container has read its request")
}

/// Tells the child to start.
pub(crate) fn start(parent: BorrowedFd<'_>) -> Result<(), Errno> {
    say(parent, START)
}

/// Tells the child that what it waits for is done.
pub(crate) fn go(parent: BorrowedFd<'_>) -> Result<(), Errno> {
    say(parent, GO)
}

/// Tells the child that it will be started over its listening socket.
pub(crate) fn leave(parent: BorrowedFd<'_>) -> Result<(), Errno> {
    say(parent, LISTEN)
}

fn say(socket: BorrowedFd<'_>, word: u8) -> Result<(), Errno> {
    loop {
        match rustix::net::send(socket, &[word], SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Err(Errno::INTR) => {}
            result => return result.map(drop),
        }
    }
}

/// One word; `None`: nobody is there any more.
fn hear(socket: BorrowedFd<'_>) -> Option<u8> {
    let mut byte = [0u8];
    loop {
        match rustix::net::recv(socket, &mut byte, RecvFlags::empty()) {
            Err(Errno::INTR) => {}
            Ok((1, _)) => return Some(byte[0]),
            _ => return None,
        }
    }
}

/// The child's end.
pub(crate) struct ChildEnd {
    socket: OwnedFd,
    /// A listening socket over which another process may start it.
    listener: Option<OwnedFd>,
    /// Who started it, if that came over the listening socket.
    starter: OnceCell<ManuallyDrop<OwnedFd>>,
}

impl ChildEnd {
    pub(crate) fn new(socket: OwnedFd, listener: Option<OwnedFd>) -> Self {
        Self { socket, listener, starter: OnceCell::new() }
    }

    /// What the child must keep of it.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        [self.socket.as_fd()].into_iter().chain(self.listener.as_ref().map(AsFd::as_fd))
    }

    /// Waits for the parent's `go`.
    pub(crate) fn wait_for_go(&self) -> Result<(), Error> {
        match hear(self.socket.as_fd()) {
            Some(GO) => Ok(()),
            _ => Err(Error::system("wait for the runtime to go on: it ended", Errno::PIPE)),
        }
    }

    /// Says that the namespaces are there, and waits until the runtime has done its part.
    pub(crate) fn show_namespaces(&self) -> Result<(), Error> {
        say(self.socket.as_fd(), NAMESPACES).during(|| "tell the parent that the namespaces are made")?;
        self.wait_for_go()
    }

    /// Says that it is in a new user namespace, and waits until that has its maps.
    pub(crate) fn wait_for_maps(&self) -> Result<(), Error> {
        say(self.socket.as_fd(), UNMAPPED).during(|| "ask the parent for the maps of the user namespace")?;
        self.wait_for_go()
    }

    /// Hands over what it ran ahead for.
    pub(crate) fn born(&self, child: &Child) -> Result<(), Error> {
        let [a, b, c, d] = child.pid.to_ne_bytes();
        self.send_with(&[BORN, a, b, c, d], &[child.pidfd.as_fd()])
            .during(|| "hand the container's process over to the parent")
    }

    /// Hands over what it made, [`FDS_MAX`] at most.
    pub(crate) fn made(&self, files: &[BorrowedFd<'_>]) -> Result<(), Error> {
        self.send_with(&[MADE], files).during(|| "hand the namespaces over to the parent")
    }

    /// Says that the set-up is done.
    pub(crate) fn ready(&self, terminal: Option<BorrowedFd<'_>>) -> Result<(), Error> {
        self.send_with(&[READY], terminal.as_slice()).during(|| "tell the parent that the container is set up")
    }

    fn send_with(&self, data: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            ancillary.push(SendAncillaryMessage::ScmRights(fds));
        }
        sendmsg(&self.socket, &[IoSlice::new(data)], &mut ancillary, SendFlags::NOSIGNAL).map(drop)
    }

    /// Waits for the start; `false`: nobody is left who could give it.
    pub(crate) fn wait(&self) -> bool {
        match (hear(self.socket.as_fd()), &self.listener) {
            (Some(START), _) => true,
            (Some(LISTEN), Some(listener)) => self.accept(listener.as_fd()),
            _ => false,
        }
    }

    /// Until somebody connects and says `S`; who connects and says nothing or something else is ignored.
    fn accept(&self, listener: BorrowedFd<'_>) -> bool {
        loop {
            match accept_with(listener, SocketFlags::CLOEXEC) {
                // One that is over by now has withdrawn its request: the container was frozen.
                Ok(starter) if hear(starter.as_fd()) == Some(START) && !is_over(starter.as_fd()) => {
                    return self.starter.set(ManuallyDrop::new(starter)).is_ok();
                }
                Ok(_) | Err(Errno::INTR | Errno::CONNABORTED | Errno::NFILE | Errno::NOMEM) => {}
                Err(_) => return false,
            }
        }
    }

    /// Says what failed. Where nobody listens any more there is nobody to tell.
    pub(crate) fn failed(&self, error: &Error) {
        let kind = match error.kind {
            ErrorKind::Invalid => b'I',
            ErrorKind::Command => b'C',
            ErrorKind::Ended => b'E',
            ErrorKind::System => b'S',
        };
        let message = error.message.as_bytes();
        let mut data = vec![FAILED, kind];
        data.extend_from_slice(&message[..message.len().min(MESSAGE_MAX)]);
        let to = self.starter.get().map_or(&self.socket, |starter| starter);
        let _ = rustix::net::send(to, &data, SendFlags::NOSIGNAL);
    }
}

impl AsFd for ChildEnd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
