//! The socket between the monitor and a log writer: one packet, one message as JSON, with descriptors.

use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
};

use rustix::{
    cmsg_space,
    event::{PollFd, PollFlags, poll},
    fd::{AsFd, BorrowedFd, OwnedFd},
    io::Errno,
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
    },
};
use serde::{Serialize, de::DeserializeOwned};

/// Longest message.
const MESSAGE_MAX: usize = 8 * 1024;
/// Most descriptors of one message: the streams and the log of a container.
const FILES_MAX: usize = 8;

/// One end, non-blocking.
#[derive(Debug)]
pub(crate) struct Line(OwnedFd);

/// What came.
pub(crate) enum Received<T> {
    Message(T, Vec<OwnedFd>),
    Nothing,
    /// The other side is gone.
    Closed,
}

impl Line {
    /// Both ends.
    pub(crate) fn pair() -> io::Result<(Self, Self)> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (one, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        Ok((Self(one), Self(other)))
    }

    /// Sends a message whole or not at all; `EAGAIN` where there is no room.
    pub(crate) fn send(&self, message: &impl Serialize, files: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        let text = serde_json::to_vec(message).map_err(|_| Errno::INVAL)?;
        if text.len() > MESSAGE_MAX {
            return Err(Errno::MSGSIZE);
        }
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(FILES_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() && !control.push(SendAncillaryMessage::ScmRights(files)) {
            return Err(Errno::INVAL);
        }
        loop {
            match sendmsg(&self.0, &[IoSlice::new(&text)], &mut control, SendFlags::NOSIGNAL) {
                Err(Errno::INTR) => {}
                sent => return sent.map(drop),
            }
        }
    }

    /// Sends a message and waits for room; an error means that the other side is gone.
    pub(crate) fn send_waiting(&self, message: &impl Serialize) -> Result<(), Errno> {
        loop {
            match self.send(message, &[]) {
                Err(Errno::AGAIN) => match poll(&mut [PollFd::new(&self.0, PollFlags::OUT)], None) {
                    Err(errno) if errno != Errno::INTR => return Err(errno),
                    _ => {}
                },
                sent => return sent,
            }
        }
    }

    /// Takes the next message.
    pub(crate) fn receive<T: DeserializeOwned>(&self) -> io::Result<Received<T>> {
        let mut data = [0; MESSAGE_MAX + 1];
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(FILES_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let got = loop {
            match recvmsg(&self.0, &mut [IoSliceMut::new(&mut data)], &mut control, RecvFlags::CMSG_CLOEXEC) {
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(Received::Nothing),
                Err(Errno::CONNRESET) => return Ok(Received::Closed),
                got => break got?,
            }
        };
        let mut files = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                files.extend(rights);
            }
        }
        if got.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
            return Err(io::Error::other("a message was cut off: too long, or the limit of open files"));
        }
        if got.bytes == 0 {
            return Ok(Received::Closed);
        }
        Ok(Received::Message(serde_json::from_slice(&data[..got.bytes])?, files))
    }
}

impl AsFd for Line {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
