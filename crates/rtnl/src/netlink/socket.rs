//! A netlink socket and its requests. The kernel processes a request within `send`, so the replies are available when
//! it returns.

use std::{fmt, io};

use rustix::{
    fd::OwnedFd,
    io::Errno,
    net::{
        AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, bind, netlink::SocketAddrNetlink, recv,
        send, socket_with,
    },
};
use syscall::netlink::{NetlinkOption, enable};

use super::{ACK, Batch, DUMP, batch::HEADER, reply};

const NLMSG_NOOP: u16 = 1;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_CAPPED: u16 = 0x100;
const NLM_F_ACK_TLVS: u16 = 0x200;
const NLM_F_DUMP_INTR: u16 = 0x10;
/// Size of the receive buffer. The kernel's dumps fill at most 32 KiB.
const REPLY_MAX: usize = 64 * 1024;

/// Size of the send buffer for nftables, enough for a transaction of several hundred thousand elements.
const TRANSACTION_MAX: usize = 16 << 20;

/// The kernel's error for one message of a batch.
#[derive(Debug)]
pub struct Refusal {
    /// Index of the message in the batch, from zero.
    pub index: usize,
    /// Error number.
    pub errno: Errno,
    /// Extended acknowledgement text, empty if the kernel sent none.
    pub explanation: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cause = io::Error::from(self.errno);
        if self.explanation.is_empty() { cause.fmt(f) } else { write!(f, "{cause}: {}", self.explanation) }
    }
}

impl From<Refusal> for io::Error {
    fn from(refusal: Refusal) -> Self {
        if refusal.explanation.is_empty() {
            return refusal.errno.into();
        }
        let cause = Self::from(refusal.errno);
        Self::new(cause.kind(), format!("{cause}: {}", refusal.explanation))
    }
}

impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Self {
        Self { index: 0, errno, explanation: String::new() }
    }
}

/// A netlink socket. It is not shared: each owner waits for the replies to its own requests.
#[derive(Debug)]
pub struct Socket {
    fd: OwnedFd,
    sequence: u32,
    reply: Vec<u8>,
}

impl Socket {
    /// Opens a socket for links, addresses and routes, in the network namespace of the calling thread.
    pub fn route() -> io::Result<Self> {
        Self::open(None)
    }

    /// Opens a socket for nftables, in the network namespace of the calling thread.
    pub fn netfilter() -> io::Result<Self> {
        let socket = Self::open(Some(rustix::net::netlink::NETFILTER))?;
        // A transaction is sent in one piece. If the kernel refuses this size, only very large transactions fail.
        let _ = rustix::net::sockopt::set_socket_send_buffer_size_force(&socket.fd, TRANSACTION_MAX);
        Ok(socket)
    }

    /// Opens a socket for generic netlink, in the network namespace of the calling thread.
    pub fn generic() -> io::Result<Self> {
        Self::open(Some(rustix::net::netlink::GENERIC))
    }

    fn open(protocol: Option<Protocol>) -> io::Result<Self> {
        let fd = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, protocol)?;
        bind(&fd, &SocketAddrNetlink::new(0, 0))?;
        // Both options only improve error messages, so kernels without them work too.
        let _ = enable(&fd, NetlinkOption::CapAck);
        let _ = enable(&fd, NetlinkOption::ExtAck);
        Ok(Self { fd, sequence: 1, reply: Vec::new() })
    }

    /// Sends all messages at once and waits until the kernel has processed them; returns the first error. Messages
    /// after a failed one are processed too, except within an nftables transaction.
    pub fn request(&mut self, batch: Batch) -> Result<(), Refusal> {
        if batch.is_empty() {
            return Ok(());
        }
        let last = batch.len().saturating_sub(1);
        self.request_acknowledged(batch, last)
    }

    /// Like `request`, where `last` is the index of the last message that the kernel acknowledges.
    pub fn request_acknowledged(&mut self, mut batch: Batch, last: usize) -> Result<(), Refusal> {
        batch.flag(last, ACK);
        let mut refusals = Vec::new();
        self.exchange(batch, last, |_, _| {}, &mut refusals)?;
        refusals.into_iter().next().map_or(Ok(()), Err)
    }

    /// Like `request`, but returns every error, for requests of which some may fail.
    pub fn request_each(&mut self, mut batch: Batch) -> Result<Vec<Refusal>, Refusal> {
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        let last = batch.len().saturating_sub(1);
        batch.flag(last, ACK);
        let mut refusals = Vec::new();
        self.exchange(batch, last, |_, _| {}, &mut refusals)?;
        Ok(refusals)
    }

    /// Sends one message and passes the type and body of each reply to `each`.
    pub fn query(&mut self, mut batch: Batch, mut each: impl FnMut(u16, &[u8])) -> Result<(), Refusal> {
        batch.flag(0, ACK);
        let mut refusals = Vec::new();
        self.exchange(batch, 0, |kind, body| each(kind, body), &mut refusals)?;
        refusals.into_iter().next().map_or(Ok(()), Err)
    }

    /// Like `query`, for a dump. Returns `EINTR` if a change interrupted the dump; the caller must repeat it.
    pub fn dump(&mut self, mut batch: Batch, mut each: impl FnMut(u16, &[u8])) -> Result<(), Refusal> {
        batch.flag(0, DUMP);
        let mut refusals = Vec::new();
        self.exchange(batch, 0, |kind, body| each(kind, body), &mut refusals)?;
        refusals.into_iter().next().map_or(Ok(()), Err)
    }

    fn exchange(
        &mut self,
        mut batch: Batch,
        last: usize,
        mut each: impl FnMut(u16, &[u8]),
        refusals: &mut Vec<Refusal>,
    ) -> Result<(), Refusal> {
        let first = self.sequence;
        let count = u32::try_from(batch.starts.len()).map_err(|_| Errno::TOOBIG)?;
        self.sequence = self.sequence.wrapping_add(count);
        batch.number_from(first);
        retry(|| send(&self.fd, &batch.buffer, SendFlags::empty()))?;
        self.reply.resize(REPLY_MAX, 0);
        loop {
            let reply = &mut self.reply[..];
            let (length, whole) = retry(|| recv(&self.fd, &mut reply[..], RecvFlags::TRUNC))?;
            if whole > length {
                return Err(Errno::MSGSIZE.into());
            }
            for (header, body) in Messages(&self.reply[..length]) {
                let index = header.sequence.wrapping_sub(first) as usize;
                if index >= count as usize {
                    continue; // A reply to an earlier request that failed midway.
                }
                match header.kind {
                    NLMSG_NOOP => {}
                    NLMSG_ERROR | NLMSG_DONE => {
                        let refusal = refusal(index, &header, body);
                        let failed = refusal.is_some();
                        refusals.extend(refusal);
                        // If a transaction fails as a whole, the kernel only acknowledges its first message.
                        if index == last
                            || header.kind == NLMSG_DONE
                            || (failed && index == 0 && last > 0 && header.is_batch_begin(body))
                        {
                            return Ok(());
                        }
                    }
                    kind => {
                        each(kind, body);
                        if header.flags & NLM_F_DUMP_INTR != 0 {
                            refusals.push(Errno::INTR.into());
                        }
                    }
                }
            }
        }
    }
}

fn retry<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> Result<T, Refusal> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            done => return done.map_err(Refusal::from),
        }
    }
}

/// Parses the body of `NLMSG_ERROR` (an `i32` errno, the header of the failed message, attributes) or of `NLMSG_DONE`
/// (an `i32`). Returns `None` for a success.
fn refusal(index: usize, header: &Header, body: &[u8]) -> Option<Refusal> {
    let code = i32::from_ne_bytes(body.get(0..4)?.try_into().ok()?);
    if code == 0 {
        return None;
    }
    let errno = Errno::from_raw_os_error(-code);
    let mut explanation = String::new();
    if header.kind == NLMSG_ERROR && header.flags & NLM_F_ACK_TLVS != 0 {
        let echoed = match header.flags & NLM_F_CAPPED {
            0 => u32::from_ne_bytes(body.get(4..8)?.try_into().ok()?) as usize,
            _ => HEADER,
        };
        const NLMSGERR_ATTR_MSG: u16 = 1;
        let attributes = body.get(4 + echoed.next_multiple_of(4)..).unwrap_or_default();
        explanation = reply::find(attributes, NLMSGERR_ATTR_MSG).map(reply::text).unwrap_or_default();
    }
    Some(Refusal { index, errno, explanation })
}

struct Header {
    kind: u16,
    flags: u16,
    sequence: u32,
}

impl Header {
    /// Reports whether an error is for `NFNL_MSG_BATCH_BEGIN`, whose header is echoed after the errno.
    fn is_batch_begin(&self, body: &[u8]) -> bool {
        const NFNL_MSG_BATCH_BEGIN: u16 = 16;
        self.kind == NLMSG_ERROR && body.get(8..10) == Some(&NFNL_MSG_BATCH_BEGIN.to_ne_bytes())
    }
}

/// Iterates over the types and bodies of the messages that were received.
pub(crate) fn messages(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    Messages(bytes).map(|(header, body)| (header.kind, body))
}

struct Messages<'a>(&'a [u8]);

impl<'a> Iterator for Messages<'a> {
    type Item = (Header, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let bytes = self.0;
        let length = u32::from_ne_bytes(bytes.get(0..4)?.try_into().ok()?) as usize;
        let kind = u16::from_ne_bytes(bytes.get(4..6)?.try_into().ok()?);
        let flags = u16::from_ne_bytes(bytes.get(6..8)?.try_into().ok()?);
        let sequence = u32::from_ne_bytes(bytes.get(8..12)?.try_into().ok()?);
        let body = bytes.get(HEADER..length)?;
        self.0 = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((Header { kind, flags, sequence }, body))
    }
}
