//! The requests to rtnetlink(7) that moving a network device needs.

use rustix::{
    fd::OwnedFd,
    io::Errno,
    net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with},
};

pub(crate) const NEW_LINK: u16 = 16;
pub(crate) const GET_LINK: u16 = 18;
pub(crate) const NEW_ADDRESS: u16 = 20;
pub(crate) const GET_ADDRESS: u16 = 22;

/// Size of `nlmsghdr`.
const HEADER: usize = 16;
const REQUEST_ACK: u16 = 0x1 | 0x4;
const CREATE_EXCLUSIVE: u16 = 0x400 | 0x200;
const DUMP: u16 = 0x300;
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// Maximum size in bytes of the buffers that the kernel fills with a dump.
const REPLY_MAX: usize = 64 << 10;

/// A request: header, payload struct of its kind, attributes.
pub(crate) struct Request(Vec<u8>);

impl Request {
    /// Starts a request; `body` is an `ifinfomsg` or `ifaddrmsg`.
    pub(crate) fn new(kind: u16, body: &[u8]) -> Self {
        let flags = match kind {
            GET_ADDRESS => REQUEST_ACK | DUMP,
            NEW_ADDRESS => REQUEST_ACK | CREATE_EXCLUSIVE,
            _ => REQUEST_ACK,
        };
        let mut bytes = vec![0; HEADER];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
        bytes.extend_from_slice(body);
        Self(bytes)
    }

    pub(crate) fn attribute(mut self, kind: u16, value: &[u8]) -> Self {
        let length = (4 + value.len()) as u16;
        self.0.extend_from_slice(&length.to_ne_bytes());
        self.0.extend_from_slice(&kind.to_ne_bytes());
        self.0.extend_from_slice(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }
}

/// A netlink socket in the network namespace in which it was opened.
pub(crate) struct Socket(OwnedFd);

impl Socket {
    pub(crate) fn open() -> Result<Self, Errno> {
        // Protocol zero is NETLINK_ROUTE; a netlink socket without a peer sends to the kernel.
        socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None).map(Self)
    }

    /// Sends a request and returns the kernel's replies without their headers: the payload struct of the kind, and
    /// attributes.
    pub(crate) fn request(&self, request: Request) -> Result<Vec<Vec<u8>>, Errno> {
        let mut bytes = request.0;
        let length = bytes.len() as u32;
        bytes[0..4].copy_from_slice(&length.to_ne_bytes());
        send(&self.0, &bytes, SendFlags::empty())?;
        let mut replies = Vec::new();
        let mut buffer = vec![0; REPLY_MAX];
        loop {
            let (_, length) = recv(&self.0, &mut buffer[..], RecvFlags::empty())?;
            for message in messages(&buffer[..length.min(REPLY_MAX)]) {
                match message {
                    // The payload is the negated errno; zero means success.
                    (ERROR, body) | (DONE, body) => {
                        return match u32_at(body, 0).map(|number| -(number as i32)) {
                            Some(0) | None => Ok(replies),
                            Some(errno) => Err(Errno::from_raw_os_error(errno)),
                        };
                    }
                    (_, body) => replies.push(body.to_vec()),
                }
            }
        }
    }
}

/// Iterates over messages: kind and payload of each.
fn messages(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = u32_at(bytes, 0)? as usize;
        let kind = u16::from_ne_bytes(bytes.get(4..6)?.try_into().ok()?);
        let body = bytes.get(HEADER..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, body))
    })
}

/// Iterates over the attributes, kind and value of each, that follow a payload struct of `skip` bytes.
pub(crate) fn attributes(body: &[u8], skip: usize) -> impl Iterator<Item = (u16, &[u8])> {
    let mut bytes = body.get(skip..).unwrap_or_default();
    std::iter::from_fn(move || {
        let length = usize::from(u16::from_ne_bytes(bytes.get(0..2)?.try_into().ok()?));
        let kind = u16::from_ne_bytes(bytes.get(2..4)?.try_into().ok()?);
        let value = bytes.get(4..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// Reads a `u32` at an offset, in native byte order.
pub(crate) fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(offset..offset + 4)?.try_into().ok()?))
}
