use std::io;

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::{Attachments, Envelope};

/// Longest JSON that travels in the packet itself; a longer one travels in a memfd.
pub const INLINE_MAX: usize = 64 * 1024;
/// Longest JSON that is accepted at all.
pub const FRAME_MAX: usize = 16 * 1024 * 1024;
/// Most descriptors in one frame (the kernel's SCM_MAX_FD is 253).
pub const FRAME_FDS_MAX: usize = 250;

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

    /// Sends one frame. The roles of the envelope are set from `attachments`.
    pub fn send(&self, _envelope: Envelope, _attachments: &Attachments) -> Result<(), CodecError> {
        todo!("owned by the pinmon work")
    }

    /// Reads one frame. Received descriptors are close-on-exec.
    pub fn receive(&self) -> Result<(Envelope, Attachments), CodecError> {
        todo!("owned by the pinmon work")
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
