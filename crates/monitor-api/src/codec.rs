//! Frames on the wire.
//!
//! One packet is one frame: its JSON, or one byte `@` where the JSON is longer than [`INLINE_MAX`] and travels in a
//! sealed memfd that is the first descriptor. The roles in the envelope say what the other descriptors are; a frame
//! whose roles and descriptors differ in number is malformed, and its descriptors are closed.

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

/// Longest JSON that travels in the packet itself; a longer one travels in a memfd.
pub const INLINE_MAX: usize = 64 * 1024;
/// Longest JSON that is accepted at all.
pub const FRAME_MAX: usize = 16 * 1024 * 1024;
/// Most descriptors in one frame (the kernel's SCM_MAX_FD is 253).
pub const FRAME_FDS_MAX: usize = 250;

/// What stands in the packet where the JSON is in a memfd.
const ELSEWHERE: &[u8] = b"@";
/// Room for the frame's descriptors and the memfd.
const CONTROL_FDS: usize = FRAME_FDS_MAX + 1;
/// What nobody may change any more in a frame's memfd.
const SEALS: SealFlags = SealFlags::SEAL.union(SealFlags::SHRINK).union(SealFlags::GROW).union(SealFlags::WRITE);

/// Why a frame could not be sent or read.
#[derive(Debug, thiserror::Error)]
pub enum CodecError {
    /// The other side is gone.
    #[error("the other side closed the connection")]
    Closed,
    /// Nothing to read, or no room to write, on a non-blocking socket.
    #[error("would block")]
    WouldBlock,
    /// The frame breaks the contract.
    #[error("malformed frame: {0}")]
    Malformed(String),
    /// The kernel refused.
    #[error("{operation}: {source}")]
    Io {
        /// What was tried.
        operation: &'static str,
        /// Why it failed.
        source: io::Error,
    },
}

impl CodecError {
    fn at(operation: &'static str) -> impl Fn(Errno) -> Self {
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
    /// Wraps a connected `SOCK_SEQPACKET` socket (blocking or not: that stays the caller's choice).
    pub fn new(socket: OwnedFd) -> Self {
        Self { socket }
    }

    /// Sends one frame. The roles of the envelope are set from `attachments`. A frame is sent whole or not at all.
    pub fn send(&self, envelope: Envelope, attachments: &Attachments) -> Result<(), CodecError> {
        let packet = Packet::encode(envelope, attachments)?;
        self.send_packet(packet.data(), &packet.descriptors(attachments))
    }

    /// Sends a frame that was encoded before: again, where the socket had no room.
    pub fn send_frame(&self, frame: &Frame) -> Result<(), CodecError> {
        self.send_packet(frame.packet.data(), &frame.packet.descriptors(&frame.attachments))
    }

    /// Reads one frame. Received descriptors are close-on-exec. After `Malformed` the connection can still be read.
    pub fn receive(&self) -> Result<(Envelope, Attachments), CodecError> {
        let (mut data, mut fds) = self.receive_packet()?;
        if data == ELSEWHERE {
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
                .map_err(CodecError::at("sendmsg"))?;
        debug_assert_eq!(sent, data.len(), "a packet goes whole");
        Ok(())
    }

    fn receive_packet(&self) -> Result<(Vec<u8>, std::vec::IntoIter<OwnedFd>), CodecError> {
        let peek = RecvFlags::PEEK | RecvFlags::TRUNC;
        let (_, length) =
            retry(|| rustix::net::recv(&self.socket, &mut [0u8; 0][..], peek)).map_err(CodecError::at("recv"))?;
        // One byte more than needed, so that a packet longer than allowed shows as truncated.
        let mut data = vec![0; length.min(INLINE_MAX) + 1];
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(CONTROL_FDS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let got = retry(|| {
            rustix::net::recvmsg(&self.socket, &mut [IoSliceMut::new(&mut data)], &mut control, RecvFlags::CMSG_CLOEXEC)
        })
        .map_err(CodecError::at("recvmsg"))?;
        let mut fds = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                fds.extend(rights);
            }
        }
        if got.flags.contains(ReturnFlags::TRUNC) {
            return Err(CodecError::Malformed(format!("a packet of more than {INLINE_MAX} bytes")));
        }
        if got.flags.contains(ReturnFlags::CTRUNC) {
            return Err(CodecError::Malformed("descriptors were lost: too many, or the limit of open files".into()));
        }
        if got.bytes == 0 {
            return Err(CodecError::Closed);
        }
        data.truncate(got.bytes);
        Ok((data, fds.into_iter()))
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A frame ready to be sent, which can wait for room in the socket.
#[derive(Debug)]
pub struct Frame {
    packet: Packet,
    attachments: Attachments,
}

impl Frame {
    /// Encodes an envelope; its roles are set from `attachments`.
    pub fn new(envelope: Envelope, attachments: Attachments) -> Result<Self, CodecError> {
        Ok(Self { packet: Packet::encode(envelope, &attachments)?, attachments })
    }

    /// The attached descriptors, for callers that must not close all of them.
    pub fn into_attachments(self) -> Attachments {
        self.attachments
    }
}

/// The JSON, and the memfd it moved to where it is long.
#[derive(Debug)]
enum Packet {
    Inline(Vec<u8>),
    Elsewhere(OwnedFd),
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
        if json.len() > INLINE_MAX { Ok(Self::Elsewhere(seal(&json)?)) } else { Ok(Self::Inline(json)) }
    }

    fn data(&self) -> &[u8] {
        match self {
            Self::Inline(json) => json,
            Self::Elsewhere(_) => ELSEWHERE,
        }
    }

    fn descriptors<'a>(&'a self, attachments: &'a Attachments) -> Vec<BorrowedFd<'a>> {
        let memfd = match self {
            Self::Inline(_) => None,
            Self::Elsewhere(memfd) => Some(memfd.as_fd()),
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
        .map_err(CodecError::at("memfd_create"))?;
    let mut rest = json;
    while !rest.is_empty() {
        let n = retry(|| rustix::io::write(&memfd, rest)).map_err(CodecError::at("write to memfd"))?;
        rest = &rest[n..];
    }
    rustix::fs::fcntl_add_seals(&memfd, SEALS).map_err(CodecError::at("seal memfd"))?;
    Ok(memfd)
}

fn unseal(memfd: &OwnedFd) -> Result<Vec<u8>, CodecError> {
    let seals = rustix::fs::fcntl_get_seals(memfd)
        .map_err(|e| CodecError::Malformed(format!("a long frame's descriptor is no memfd: {e}")))?;
    if !seals.contains(SEALS) {
        return Err(CodecError::Malformed("the memfd of a long frame is not sealed".into()));
    }
    let size = rustix::fs::fstat(memfd).map_err(CodecError::at("fstat memfd"))?.st_size as usize;
    if size > FRAME_MAX {
        return Err(CodecError::Malformed(format!("{size} bytes, at most {FRAME_MAX}")));
    }
    let mut data = vec![0; size];
    let mut filled = 0;
    while filled < size {
        match retry(|| rustix::io::pread(memfd, &mut data[filled..], filled as u64))
            .map_err(CodecError::at("pread memfd"))?
        {
            0 => return Err(CodecError::Malformed("the memfd of a long frame ended early".into())),
            n => filled += n,
        }
    }
    Ok(data)
}

#[cfg(test)]
mod tests;
