//! Requests to rtnetlink(7), as many as moving a network device takes.

use rustix::{
    fd::OwnedFd,
    io::Errno,
    net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with},
};

pub(crate) const NEW_LINK: u16 = 16;
pub(crate) const GET_LINK: u16 = 18;
pub(crate) const NEW_ADDRESS: u16 = 20;
pub(crate) const GET_ADDRESS: u16 = 22;

/// `nlmsghdr`
const HEADER: usize = 16;
const REQUEST_ACK: u16 = 0x1 | 0x4;
const CREATE_EXCLUSIVE: u16 = 0x400 | 0x200;
const DUMP: u16 = 0x300;
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// The kernel fills dumps into buffers of at most so much.
const ANSWER_MAX: usize = 64 << 10;

/// A request: its header, the kind's own struct, attributes.
pub(crate) struct Request(Vec<u8>);

impl Request {
    /// `body`: `ifinfomsg` or `ifaddrmsg`.
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

/// A socket in the network namespace that its maker was in.
pub(crate) struct Socket(OwnedFd);

impl Socket {
    pub(crate) fn open() -> Result<Self, Errno> {
        // Protocol zero is NETLINK_ROUTE; a netlink socket without a peer sends to the kernel.
        socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None).map(Self)
    }

    /// What the kernel answers, without the headers: each is the kind's own struct and attributes.
    pub(crate) fn ask(&self, request: Request) -> Result<Vec<Vec<u8>>, Errno> {
        let mut bytes = request.0;
        let length = bytes.len() as u32;
        bytes[0..4].copy_from_slice(&length.to_ne_bytes());
        send(&self.0, &bytes, SendFlags::empty())?;
        let mut answers = Vec::new();
        let mut buffer = vec![0; ANSWER_MAX];
        loop {
            let (_, length) = recv(&self.0, &mut buffer[..], RecvFlags::empty())?;
            for message in messages(&buffer[..length.min(ANSWER_MAX)]) {
                match message {
                    // The negated errno; zero: done.
                    (ERROR, body) | (DONE, body) => {
                        return match word(body, 0).map(|word| -(word as i32)) {
                            Some(0) | None => Ok(answers),
                            Some(errno) => Err(Errno::from_raw_os_error(errno)),
                        };
                    }
                    (_, body) => answers.push(body.to_vec()),
                }
            }
        }
    }
}

/// Kinds and bodies.
fn messages(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = word(bytes, 0)? as usize;
        let kind = u16::from_ne_bytes(bytes.get(4..6)?.try_into().ok()?);
        let body = bytes.get(HEADER..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, body))
    })
}

/// Kinds and values of the attributes that follow the kind's own struct, which is `skip` bytes long.
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

/// Four bytes of it, in the machine's order.
pub(crate) fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}
