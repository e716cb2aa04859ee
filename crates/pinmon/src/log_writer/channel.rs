//! Socket between the monitor and a log writer. Each packet is one message as JSON, with descriptors.

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

/// Maximum length of a message in bytes.
const MESSAGE_MAX: usize = 8 * 1024;
/// Maximum number of descriptors of a message: the streams and the log of a container.
const FILES_MAX: usize = 8;

/// One end of the socket, non-blocking.
#[derive(Debug)]
pub(crate) struct Channel(OwnedFd);

/// Result of a receive.
pub(crate) enum Incoming<T> {
    Message(T, Vec<OwnedFd>),
    Nothing,
    /// The peer closed its end.
    Closed,
}

impl Channel {
    /// Creates a connected pair.
    pub(crate) fn pair() -> io::Result<(Self, Self)> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (one, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        Ok((Self(one), Self(other)))
    }

    /// Sends a message, whole or not at all. Fails with `EAGAIN` if the socket has no room.
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

    /// Sends a message, and waits for room. An error means that the peer closed its end.
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

    /// Receives the next message.
    pub(crate) fn receive<T: DeserializeOwned>(&self) -> io::Result<Incoming<T>> {
        let mut data = [0; MESSAGE_MAX + 1];
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(FILES_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = loop {
            match recvmsg(&self.0, &mut [IoSliceMut::new(&mut data)], &mut control, RecvFlags::CMSG_CLOEXEC) {
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(Incoming::Nothing),
                Err(Errno::CONNRESET) => return Ok(Incoming::Closed),
                received => break received?,
            }
        };
        let mut files = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                files.extend(rights);
            }
        }
        if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
            return Err(io::Error::other("a message was truncated: too long, or the open file limit is reached"));
        }
        if received.bytes == 0 {
            return Ok(Incoming::Closed);
        }
        Ok(Incoming::Message(serde_json::from_slice(&data[..received.bytes])?, files))
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
