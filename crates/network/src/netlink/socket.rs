//! A netlink socket and its requests. The kernel does the work within `send`, so the answers are there when it returns.

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
/// No answer is longer: the kernel's dumps fill at most 32 KiB.
const ANSWER: usize = 64 * 1024;

/// No transaction is longer: some hundred thousand elements.
const TRANSACTION: usize = 16 << 20;

/// A message the kernel refused.
#[derive(Debug)]
pub(crate) struct Refusal {
    /// Which message of the batch, from zero.
    pub(crate) message: usize,
    /// Its errno.
    pub(crate) errno: Errno,
    /// The kernel's words, if it had some.
    pub(crate) words: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cause = io::Error::from(self.errno);
        if self.words.is_empty() { cause.fmt(f) } else { write!(f, "{cause}: {}", self.words) }
    }
}

impl From<Refusal> for io::Error {
    fn from(refusal: Refusal) -> Self {
        if refusal.words.is_empty() {
            return refusal.errno.into();
        }
        let cause = Self::from(refusal.errno);
        Self::new(cause.kind(), format!("{cause}: {}", refusal.words))
    }
}

impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Self {
        Self { message: 0, errno, words: String::new() }
    }
}

/// A netlink socket. Not shared: whoever has it waits for the answers to his own request.
#[derive(Debug)]
pub(crate) struct Socket {
    fd: OwnedFd,
    sequence: u32,
    answer: Vec<u8>,
}

impl Socket {
    /// One for links, addresses and routes, in the namespace of the calling thread.
    pub(crate) fn route() -> io::Result<Self> {
        Self::open(None)
    }

    /// One for nftables, in the namespace of the calling thread.
    pub(crate) fn netfilter() -> io::Result<Self> {
        let socket = Self::open(Some(rustix::net::netlink::NETFILTER))?;
        // A transaction is sent whole. Where the size is refused, only very many ports at once are.
        let _ = rustix::net::sockopt::set_socket_send_buffer_size_force(&socket.fd, TRANSACTION);
        Ok(socket)
    }

    fn open(protocol: Option<Protocol>) -> io::Result<Self> {
        let fd = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, protocol)?;
        bind(&fd, &SocketAddrNetlink::new(0, 0))?;
        // Both only make errors better: an old kernel's are good enough.
        let _ = enable(&fd, NetlinkOption::ShortErrors);
        let _ = enable(&fd, NetlinkOption::Explain);
        Ok(Self { fd, sequence: 1, answer: Vec::new() })
    }

    /// Sends all messages at once and waits until the kernel has done them; the first refusal is the error. Each
    /// message is tried, also behind one that was refused (other than within an nftables transaction).
    pub(crate) fn request(&mut self, batch: Batch) -> Result<(), Refusal> {
        let last = batch.len().saturating_sub(1);
        self.request_acknowledged(batch, last)
    }

    /// As `request`, with the message named that is the last one to be acknowledged.
    pub(crate) fn request_acknowledged(&mut self, mut batch: Batch, last: usize) -> Result<(), Refusal> {
        batch.flag(last, ACK);
        let mut refusals = Vec::new();
        self.exchange(batch, last, |_, _| {}, &mut refusals)?;
        refusals.into_iter().next().map_or(Ok(()), Err)
    }

    /// As `request`, but tells every refusal: for work where some may be.
    pub(crate) fn request_each(&mut self, mut batch: Batch) -> Result<Vec<Refusal>, Refusal> {
        let last = batch.len().saturating_sub(1);
        batch.flag(last, ACK);
        let mut refusals = Vec::new();
        self.exchange(batch, last, |_, _| {}, &mut refusals)?;
        Ok(refusals)
    }

    /// Sends one message and hands over each answer: its type and what is behind its header.
    pub(crate) fn query(&mut self, mut batch: Batch, mut each: impl FnMut(u16, &[u8])) -> Result<(), Refusal> {
        batch.flag(0, ACK);
        let mut refusals = Vec::new();
        self.exchange(batch, 0, |kind, body| each(kind, body), &mut refusals)?;
        refusals.into_iter().next().map_or(Ok(()), Err)
    }

    /// As `query`, for a dump. One that was interrupted by a change is an `EINTR`: begin again.
    pub(crate) fn dump(&mut self, mut batch: Batch, mut each: impl FnMut(u16, &[u8])) -> Result<(), Refusal> {
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
        self.answer.resize(ANSWER, 0);
        loop {
            let answer = &mut self.answer[..];
            let (length, whole) = retry(|| recv(&self.fd, &mut answer[..], RecvFlags::TRUNC))?;
            if whole > length {
                return Err(Errno::MSGSIZE.into());
            }
            for (header, body) in Messages(&self.answer[..length]) {
                let index = header.sequence.wrapping_sub(first) as usize;
                if index >= count as usize {
                    continue; // An answer to an earlier request that failed midway.
                }
                match header.kind {
                    NLMSG_NOOP => {}
                    NLMSG_ERROR | NLMSG_DONE => {
                        let refusal = refusal(index, &header, body);
                        let failed = refusal.is_some();
                        refusals.extend(refusal);
                        // A transaction that fails as a whole is told by its first message, and by nothing behind it.
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

/// Of `NLMSG_ERROR`: `i32` errno, the refused header, attributes. Of `NLMSG_DONE`: `i32`.
fn refusal(message: usize, header: &Header, body: &[u8]) -> Option<Refusal> {
    let code = i32::from_ne_bytes(body.get(0..4)?.try_into().ok()?);
    if code == 0 {
        return None;
    }
    let errno = Errno::from_raw_os_error(-code);
    let mut words = String::new();
    if header.kind == NLMSG_ERROR && header.flags & NLM_F_ACK_TLVS != 0 {
        let echoed = match header.flags & NLM_F_CAPPED {
            0 => u32::from_ne_bytes(body.get(4..8)?.try_into().ok()?) as usize,
            _ => HEADER,
        };
        const NLMSGERR_ATTR_MSG: u16 = 1;
        let attributes = body.get(4 + echoed.next_multiple_of(4)..).unwrap_or_default();
        words = reply::find(attributes, NLMSGERR_ATTR_MSG).map(reply::text).unwrap_or_default();
    }
    Some(Refusal { message, errno, words })
}

struct Header {
    kind: u16,
    flags: u16,
    sequence: u32,
}

impl Header {
    /// Whether an error is about `NFNL_MSG_BATCH_BEGIN`: its header is echoed behind the errno.
    fn is_batch_begin(&self, body: &[u8]) -> bool {
        const NFNL_MSG_BATCH_BEGIN: u16 = 16;
        self.kind == NLMSG_ERROR && body.get(8..10) == Some(&NFNL_MSG_BATCH_BEGIN.to_ne_bytes())
    }
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
