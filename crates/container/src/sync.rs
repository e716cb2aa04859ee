//! What parent and child say to each other, over one pair of `SOCK_SEQPACKET` sockets:
//!
//! ```text
//! parent                                   child (of create)
//!   │ ◀──────── E kind message ─────────────│  a step failed: it ends
//!   │ ◀──────── R [terminal] ───────────────│  set up; waits
//!   │ ───────── S ─────────────────────────▶│  start
//!   │ ◀──────── E kind message ─────────────│  a last step or execve failed: it ends
//!   │ ◀──────── end of file ────────────────│  execve closed its end: the command runs
//! ```
//!
//! The child of exec does not wait: `R` and the end of file follow each other.
//!
//! The child waits as long as *any* process holds the parent's end, so a second holder is what lets a waiting container
//! outlive its monitor; when the last one is gone the child reads the end of file and ends.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;

use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    io::Errno,
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
        SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
    },
};

use crate::{Error, ErrorKind, error::During};

/// Longest message of an error; a longer one is cut.
const MESSAGE_MAX: usize = 4096;

const READY: u8 = b'R';
const FAILED: u8 = b'E';
const START: u8 = b'S';

/// The two ends: the parent's and the child's.
pub(crate) fn pair() -> Result<(OwnedFd, OwnedFd), Error> {
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).during(|| "make a socket pair")
}

/// What came from the child.
pub(crate) enum Said {
    /// Nothing yet.
    Nothing,
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
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
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
    let terminal = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    match &data[..got.bytes] {
        [] => Ok(Said::End),
        [READY, ..] => Ok(Said::Ready(terminal)),
        [FAILED, kind, message @ ..] => {
            let kind = match kind {
                b'I' => ErrorKind::Invalid,
                b'C' => ErrorKind::Command,
                _ => ErrorKind::System,
            };
            Ok(Said::Failed(Error { kind, message: String::from_utf8_lossy(message).into_owned() }))
        }
        other => Err(Error { kind: ErrorKind::System, message: format!("the container's child said {other:?}") }),
    }
}

/// Tells the child to start.
pub(crate) fn start(parent: BorrowedFd<'_>) -> Result<(), Errno> {
    loop {
        match rustix::net::send(parent, &[START], SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Err(Errno::INTR) => {}
            result => return result.map(drop),
        }
    }
}

/// The child's end.
pub(crate) struct ChildEnd(OwnedFd);

impl ChildEnd {
    pub(crate) fn new(socket: OwnedFd) -> Self {
        Self(socket)
    }

    /// Says that the set-up is done.
    pub(crate) fn ready(&self, terminal: Option<BorrowedFd<'_>>) -> Result<(), Error> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let fds: [BorrowedFd<'_>; 1];
        if let Some(terminal) = terminal {
            fds = [terminal];
            ancillary.push(SendAncillaryMessage::ScmRights(&fds));
        }
        sendmsg(&self.0, &[IoSlice::new(&[READY])], &mut ancillary, SendFlags::NOSIGNAL)
            .during(|| "tell the parent that the container is set up")?;
        Ok(())
    }

    /// Waits for the start; `false`: nobody is left who could give it.
    pub(crate) fn wait(&self) -> bool {
        let mut byte = [0u8];
        loop {
            match rustix::net::recv(&self.0, &mut byte, RecvFlags::empty()) {
                Err(Errno::INTR) => {}
                Ok((1, _)) => return byte[0] == START,
                _ => return false,
            }
        }
    }

    /// Says what failed. Where nobody listens any more there is nobody to tell.
    pub(crate) fn failed(&self, error: &Error) {
        let kind = match error.kind {
            ErrorKind::Invalid => b'I',
            ErrorKind::Command => b'C',
            ErrorKind::System => b'S',
        };
        let message = error.message.as_bytes();
        let mut data = vec![FAILED, kind];
        data.extend_from_slice(&message[..message.len().min(MESSAGE_MAX)]);
        let _ = rustix::net::send(&self.0, &data, SendFlags::NOSIGNAL);
    }
}

impl AsFd for ChildEnd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
