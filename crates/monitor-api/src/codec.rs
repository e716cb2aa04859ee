//! Encoding of frames.
//!
//! One packet is one frame. It is the JSON of the frame, or the single byte `@` if the JSON is longer than
//! [`INLINE_MAX`]; then the first descriptor is a sealed memfd with the JSON. The roles in the envelope name the
//! purpose of the other descriptors. A frame with different numbers of roles and descriptors is malformed, and its
//! descriptors are closed.

use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
};

use rustix::{
    cmsg_space,
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{MemfdFlags, SealFlags},
    io::Errno,
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
        SendFlags,
    },
};

use crate::{Attachments, Envelope, Role};

/// Maximum length in bytes of JSON in the packet itself. Longer JSON is sent in a memfd.
pub const INLINE_MAX: usize = 64 * 1024;
/// Maximum length in bytes of the JSON of one frame.
pub const FRAME_MAX: usize = 16 * 1024 * 1024;
/// Maximum number of descriptors of one frame. `SCM_MAX_FD` of the kernel is 253.
pub const FRAME_FDS_MAX: usize = 250;

/// Content of a packet whose JSON is in a memfd.
const MEMFD_MARKER: &[u8] = b"@";
/// Number of descriptors that the control buffer has room for: those of the frame and the memfd.
const CONTROL_FDS: usize = FRAME_FDS_MAX + 1;
/// Seals that the memfd of a frame must have, so that its sender cannot change it any longer.
const SEALS: SealFlags = SealFlags::SEAL.union(SealFlags::SHRINK).union(SealFlags::GROW).union(SealFlags::WRITE);

/// Error of sending or receiving a frame.
#[derive(Debug, thiserror::Error)]
pub enum CodecError {
    /// The peer closed the connection.
    #[error("the other side closed the connection")]
    Closed,
    /// The socket is non-blocking and has nothing to read, or no room to write.
    #[error("would block")]
    WouldBlock,
    /// The frame violates the contract.
    #[error("malformed frame: {0}")]
    Malformed(String),
    /// A system call failed.
    #[error("{operation}: {source}")]
    Io {
        /// The system call, or what it was done to.
        operation: &'static str,
        /// Error of the system call.
        source: io::Error,
    },
}

impl CodecError {
    /// Returns the category, in terms of the standard library.
    pub fn kind(&self) -> io::ErrorKind {
        match self {
            Self::Closed => io::ErrorKind::UnexpectedEof,
            Self::WouldBlock => io::ErrorKind::WouldBlock,
            Self::Malformed(_) => io::ErrorKind::InvalidData,
            Self::Io { source, .. } => source.kind(),
        }
    }

    /// Returns the operation that failed; `None` if no system call failed. Its object is always the connection.
    pub fn operation(&self) -> Option<&'static str> {
        match self {
            Self::Io { operation, .. } => Some(operation),
            Self::Closed | Self::WouldBlock | Self::Malformed(_) => None,
        }
    }

    fn during(operation: &'static str) -> impl Fn(Errno) -> Self {
        move |errno| match errno {
            Errno::AGAIN => Self::WouldBlock,
            Errno::PIPE | Errno::CONNRESET => Self::Closed,
            errno => Self::Io { operation, source: errno.into() },
        }
    }
}

/// One end of a connection between daemon and monitor.
#[derive(Debug)]
pub struct Connection {
    socket: OwnedFd,
}

impl Connection {
    /// Wraps a connected `SOCK_SEQPACKET` socket, blocking or not.
    pub fn new(socket: OwnedFd) -> Self {
        Self { socket }
    }

    /// Sends one frame, whole or not at all. The roles of the envelope are set from `attachments`.
    pub fn send(&self, envelope: Envelope, attachments: &Attachments) -> Result<(), CodecError> {
        let packet = Packet::encode(envelope, attachments)?;
        self.send_packet(packet.data(), &packet.descriptors(attachments))
    }

    /// Sends an encoded frame, for example again after the socket had no room.
    pub fn send_frame(&self, frame: &Frame) -> Result<(), CodecError> {
        self.send_packet(frame.packet.data(), &frame.packet.descriptors(&frame.attachments))
    }

    /// Receives one frame. Received descriptors are close-on-exec. The connection remains usable after `Malformed`.
    pub fn receive(&self) -> Result<(Envelope, Attachments), CodecError> {
        let (mut data, mut fds) = self.receive_packet()?;
        if data == MEMFD_MARKER {
            let memfd =
                fds.next().ok_or_else(|| CodecError::Malformed("the memfd of a long frame is missing".into()))?;
            data = unseal(&memfd)?;
        }
        let envelope: Envelope = serde_json::from_slice(&data).map_err(|e| CodecError::Malformed(e.to_string()))?;
        let roles: &[Role] = match &envelope {
            Envelope::Request { roles, .. } | Envelope::Reply { roles, .. } => roles,
            Envelope::Event(_) => &[],
        };
        if roles.len() != fds.len() {
            return Err(CodecError::Malformed(format!("{} roles for {} descriptors", roles.len(), fds.len())));
        }
        let mut attachments = Attachments::new();
        for (role, fd) in roles.iter().zip(fds) {
            attachments.push(*role, fd);
        }
        Ok((envelope, attachments))
    }

    fn send_packet(&self, data: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), CodecError> {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(CONTROL_FDS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(CodecError::Malformed(format!("{} descriptors do not fit a packet", fds.len())));
        }
        let sent =
            retry(|| rustix::net::sendmsg(&self.socket, &[IoSlice::new(data)], &mut control, SendFlags::NOSIGNAL))
                .map_err(CodecError::during("sendmsg"))?;
        debug_assert_eq!(sent, data.len(), "sendmsg sends a SEQPACKET packet whole");
        Ok(())
    }

    fn receive_packet(&self) -> Result<(Vec<u8>, std::vec::IntoIter<OwnedFd>), CodecError> {
        let peek = RecvFlags::PEEK | RecvFlags::TRUNC;
        let (_, length) =
            retry(|| rustix::net::recv(&self.socket, &mut [0u8; 0][..], peek)).map_err(CodecError::during("recv"))?;
        // One byte more than allowed, so that a packet that is too long shows up as truncated.
        let mut data = vec![0; length.min(INLINE_MAX) + 1];
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(CONTROL_FDS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = retry(|| {
            rustix::net::recvmsg(&self.socket, &mut [IoSliceMut::new(&mut data)], &mut control, RecvFlags::CMSG_CLOEXEC)
        })
        .map_err(CodecError::during("recvmsg"))?;
        let mut fds = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                fds.extend(rights);
            }
        }
        if received.flags.contains(ReturnFlags::TRUNC) {
            return Err(CodecError::Malformed(format!("a packet of more than {INLINE_MAX} bytes")));
        }
        if received.flags.contains(ReturnFlags::CTRUNC) {
            let message = "descriptors were lost: too many for one message, or the open file limit is reached";
            return Err(CodecError::Malformed(message.into()));
        }
        if received.bytes == 0 {
            return Err(CodecError::Closed);
        }
        data.truncate(received.bytes);
        Ok((data, fds.into_iter()))
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// An encoded frame, which can be queued until the socket has room.
#[derive(Debug)]
pub struct Frame {
    packet: Packet,
    attachments: Attachments,
}

impl Frame {
    /// Encodes an envelope. Its roles are set from `attachments`.
    pub fn new(envelope: Envelope, attachments: Attachments) -> Result<Self, CodecError> {
        Ok(Self { packet: Packet::encode(envelope, &attachments)?, attachments })
    }

    /// Returns the attached descriptors, for callers that must not close all of them.
    pub fn into_attachments(self) -> Attachments {
        self.attachments
    }
}

/// The JSON of a frame, or the memfd that long JSON is in.
#[derive(Debug)]
enum Packet {
    Inline(Vec<u8>),
    Memfd(OwnedFd),
}

impl Packet {
    fn encode(mut envelope: Envelope, attachments: &Attachments) -> Result<Self, CodecError> {
        if attachments.len() > FRAME_FDS_MAX {
            return Err(CodecError::Malformed(format!("{} descriptors, at most {FRAME_FDS_MAX}", attachments.len())));
        }
        match &mut envelope {
            Envelope::Request { roles, .. } | Envelope::Reply { roles, .. } => *roles = attachments.roles(),
            Envelope::Event(_) if attachments.is_empty() => {}
            Envelope::Event(_) => return Err(CodecError::Malformed("an event carries no descriptors".into())),
        }
        let json = serde_json::to_vec(&envelope).map_err(|e| CodecError::Malformed(format!("encode frame: {e}")))?;
        if json.len() > FRAME_MAX {
            return Err(CodecError::Malformed(format!("{} bytes, at most {FRAME_MAX}", json.len())));
        }
        if json.len() > INLINE_MAX { Ok(Self::Memfd(seal(&json)?)) } else { Ok(Self::Inline(json)) }
    }

    fn data(&self) -> &[u8] {
        match self {
            Self::Inline(json) => json,
            Self::Memfd(_) => MEMFD_MARKER,
        }
    }

    fn descriptors<'a>(&'a self, attachments: &'a Attachments) -> Vec<BorrowedFd<'a>> {
        let memfd = match self {
            Self::Inline(_) => None,
            Self::Memfd(memfd) => Some(memfd.as_fd()),
        };
        memfd.into_iter().chain(attachments.iter().map(|(_, fd)| fd.as_fd())).collect()
    }
}

fn retry<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
}

fn seal(json: &[u8]) -> Result<OwnedFd, CodecError> {
    let memfd = rustix::fs::memfd_create(c"pinion-frame", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
        .map_err(CodecError::during("memfd_create"))?;
    let mut rest = json;
    while !rest.is_empty() {
        let n = retry(|| rustix::io::write(&memfd, rest)).map_err(CodecError::during("write to memfd"))?;
        rest = &rest[n..];
    }
    rustix::fs::fcntl_add_seals(&memfd, SEALS).map_err(CodecError::during("seal memfd"))?;
    Ok(memfd)
}

fn unseal(memfd: &OwnedFd) -> Result<Vec<u8>, CodecError> {
    let seals = rustix::fs::fcntl_get_seals(memfd)
        .map_err(|e| CodecError::Malformed(format!("the descriptor of a long frame is not a memfd: {e}")))?;
    if !seals.contains(SEALS) {
        return Err(CodecError::Malformed("the memfd of a long frame is not sealed".into()));
    }
    let size = rustix::fs::fstat(memfd).map_err(CodecError::during("fstat memfd"))?.st_size as usize;
    if size > FRAME_MAX {
        return Err(CodecError::Malformed(format!("{size} bytes, at most {FRAME_MAX}")));
    }
    let mut data = vec![0; size];
    let mut filled = 0;
    while filled < size {
        match retry(|| rustix::io::pread(memfd, &mut data[filled..], filled as u64))
            .map_err(CodecError::during("pread memfd"))?
        {
            0 => return Err(CodecError::Malformed("the memfd of a long frame is truncated".into())),
            n => filled += n,
        }
    }
    Ok(data)
}

#[cfg(test)]
mod tests;
