//! Traces of packets: which rules a packet passes in a network namespace, as the kernel reports it for packets with
//! `meta nftrace` (Linux 4.6).
//!
//! Source: `enum nft_trace_attributes` of `linux/netfilter/nf_tables.h`, `net/netfilter/nf_tables_trace.c`.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::OwnedFd,
    io::Errno,
    net::{
        AddressFamily, RecvFlags, SocketAddrAny, SocketFlags, SocketType, bind,
        netlink::{NETFILTER, SocketAddrNetlink},
        recvfrom, socket_with, sockopt,
    },
};

use super::{expression, kind};
use crate::{
    netlink::{Batch, find, messages, text},
    subnet::from_octets,
};

/// The multicast group `NFNLGRP_NFTRACE`, as a bit.
const GROUP: u32 = 1 << (9 - 1);
const TRACE: u16 = 17;
/// Room for several thousand reports that are not read yet.
const BUFFER: usize = 4 << 20;
/// Size of the largest report: names have 255 bytes at most, headers 40.
const REPORT_MAX: usize = 8 << 10;
/// Most reports that are returned at once.
const REPORTS_MAX: usize = 16 << 10;

/// What a report is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A rule whose expressions matched, or one that ended the evaluation.
    Rule,
    /// The packet returned from a base chain, whose policy applies.
    Return,
    /// The policy of a base chain.
    Policy,
}

/// A verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The next rule follows.
    Continue,
    /// The packet passes this base chain.
    Accept,
    /// The packet is dropped.
    Drop,
    /// The packet is given to a program.
    Queue,
    /// A chain follows, and then the next rule.
    Jump(String),
    /// A chain follows.
    Goto(String),
    /// The chain that jumped here follows.
    Return,
    /// Another number.
    Other(i32),
}

/// Addresses of a packet. The ports of a protocol without ports are zero. The identifier of ICMP echo is the port of the side
/// that sent the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Number of the transport protocol.
    pub protocol: u8,
    /// Source.
    pub source: SocketAddr,
    /// Destination.
    pub destination: SocketAddr,
}

/// A report of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Number that all reports on the packet have in common.
    pub id: u32,
    /// Family of the table (`NFPROTO_*`).
    pub family: u8,
    /// Name of the table.
    pub table: String,
    /// Name of the chain.
    pub chain: String,
    /// What it is about.
    pub step: Step,
    /// Handle of the rule; zero for a policy.
    pub rule: u64,
    /// Verdict.
    pub verdict: Verdict,
    /// Index of the link that the packet arrived at; zero if it is not known.
    pub arrived: u32,
    /// Index of the link that the packet leaves through; zero if it is not known.
    pub leaves: u32,
    /// The packet; only in the first report of each base chain.
    pub packet: Option<Packet>,
}

/// Receives the reports of one network namespace.
#[derive(Debug)]
pub struct Traces {
    fd: OwnedFd,
    buffer: Vec<u8>,
}

impl Traces {
    /// Subscribes to the reports of the calling thread's network namespace. Reports are kept until they are read.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_ADMIN`.
    pub fn open() -> io::Result<Self> {
        let fd = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, Some(NETFILTER))?;
        // If the kernel refuses this size, long traces are incomplete, which is reported.
        let _ = sockopt::set_socket_recv_buffer_size_force(&fd, BUFFER);
        bind(&fd, &SocketAddrNetlink::new(0, GROUP))?;
        Ok(Self { fd, buffer: vec![0; REPORT_MAX] })
    }

    /// Returns the reports that were sent until `deadline` or, if that has passed, until now, and whether some are missing:
    /// more than the socket keeps, or than the 16384 that are read at once.
    pub fn read(&mut self, deadline: Instant) -> (Vec<Report>, bool) {
        let (mut reports, mut incomplete) = (Vec::new(), false);
        for _ in 0..REPORTS_MAX {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = Timespec::try_from(left).unwrap_or(Timespec { tv_sec: 0, tv_nsec: 0 });
            match poll(&mut [PollFd::new(&self.fd, PollFlags::IN)], Some(&timeout)) {
                Ok(0) if left == Duration::ZERO => return (reports, incomplete),
                Ok(0) | Err(Errno::INTR) => continue,
                _ => {}
            }
            let length = match recvfrom(&self.fd, &mut self.buffer[..], RecvFlags::DONTWAIT) {
                Ok((length, _, sender)) if is_kernel(sender.as_ref()) => length,
                // A process of a pod may send to this group, too.
                Ok(_) | Err(Errno::AGAIN | Errno::INTR) => continue,
                Err(_) => {
                    incomplete = true;
                    continue;
                }
            };
            reports.extend(
                messages(&self.buffer[..length])
                    .filter(|(number, _)| *number == kind(TRACE))
                    .filter_map(|(_, body)| Report::parse(body)),
            );
        }
        (reports, true)
    }
}

fn is_kernel(sender: Option<&SocketAddrAny>) -> bool {
    sender.and_then(|sender| SocketAddrNetlink::try_from(sender.clone()).ok()).is_some_and(|sender| sender.pid() == 0)
}

/// Marks the packet: the kernel reports what it passes from here on.
pub fn mark(m: &mut Batch) {
    const META_NFTRACE: u32 = 12;
    expression::load(m, expression::FIRST, &[1]);
    expression::set_meta(m, META_NFTRACE);
}

impl Report {
    fn parse(body: &[u8]) -> Option<Self> {
        const RULE: u32 = 3;
        const RETURN: u32 = 2;
        const POLICY: u32 = 1;
        let all = body.get(4..)?;
        let number = |kind: u16| find(all, kind).and_then(|value| value.try_into().ok()).map(u32::from_be_bytes);
        let step = match number(4)? {
            POLICY => Step::Policy,
            RETURN => Step::Return,
            RULE => Step::Rule,
            _ => return None,
        };
        let verdict = match step {
            // NF_DROP and NF_ACCEPT.
            Step::Policy => Verdict::parse(number(16)?.cast_signed(), None),
            _ => {
                let inside = find(all, 5)?;
                let code = find(inside, 1)?.try_into().map(i32::from_be_bytes).ok()?;
                Verdict::parse(code, find(inside, 2).map(text))
            }
        };
        Some(Self {
            id: number(6)?,
            family: *body.first()?,
            table: find(all, 1).map(text)?,
            chain: find(all, 2).map(text)?,
            step,
            rule: find(all, 3).and_then(|handle| handle.try_into().ok()).map_or(0, u64::from_be_bytes),
            verdict,
            arrived: number(10).unwrap_or(0),
            leaves: number(12).unwrap_or(0),
            packet: find(all, 8).and_then(|header| Packet::parse(header, find(all, 9).unwrap_or_default())),
        })
    }
}

impl Verdict {
    fn parse(code: i32, chain: Option<String>) -> Self {
        const CONTINUE: i32 = -1;
        const QUEUE: i32 = 3;
        match (code, chain) {
            (CONTINUE, _) => Self::Continue,
            (expression::ACCEPT, _) => Self::Accept,
            (expression::DROP, _) => Self::Drop,
            (expression::JUMP, Some(chain)) => Self::Jump(chain),
            (expression::GOTO, Some(chain)) => Self::Goto(chain),
            (expression::RETURN, _) => Self::Return,
            (code, _) if code & 0xff == QUEUE => Self::Queue,
            (code, _) => Self::Other(code),
        }
    }
}

impl Packet {
    fn parse(network: &[u8], transport: &[u8]) -> Option<Self> {
        const ICMP: u8 = 1;
        const ICMP6: u8 = 58;
        const WITH_PORTS: [u8; 4] = [6, 17, 33, 132];
        let (protocol, source, destination) = match network.first()? >> 4 {
            4 => (*network.get(9)?, network.get(12..16)?, network.get(16..20)?),
            6 => (*network.get(6)?, network.get(8..24)?, network.get(24..40)?),
            _ => return None,
        };
        let port = |at: usize| transport.get(at..at + 2).map_or(0, |bytes| u16::from_be_bytes([bytes[0], bytes[1]]));
        let (from, to) = match protocol {
            ICMP | ICMP6 => match transport.first() {
                Some(8 | 128) => (port(4), 0),
                Some(0 | 129) => (0, port(4)),
                _ => (0, 0),
            },
            protocol if WITH_PORTS.contains(&protocol) => (port(0), port(2)),
            _ => (0, 0),
        };
        let (source, destination): (IpAddr, IpAddr) = (from_octets(source)?, from_octets(destination)?);
        Some(Self { protocol, source: (source, from).into(), destination: (destination, to).into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_ports_are_read_from_headers() {
        let mut header = [0; 20];
        (header[0], header[9]) = (0x45, 6);
        header[12..16].copy_from_slice(&[10, 0, 0, 1]);
        header[16..20].copy_from_slice(&[10, 0, 0, 2]);
        let packet = Packet::parse(&header, &[0x80, 0, 0, 80]).unwrap();
        assert_eq!(
            (packet.source, packet.destination),
            ("10.0.0.1:32768".parse().unwrap(), "10.0.0.2:80".parse().unwrap())
        );
        // Without the header of the transport protocol, and too short.
        assert_eq!(Packet::parse(&header, &[]).unwrap().destination.port(), 0);
        assert_eq!(Packet::parse(&header[..19], &[]), None);
        assert_eq!(Packet::parse(&[0x60; 39], &[]), None);
        assert_eq!(Packet::parse(&[], &[]), None);
    }

    #[test]
    fn incomplete_reports_are_left_out() {
        for length in 0..40 {
            assert_eq!(Report::parse(&vec![0; length]), None);
        }
    }
}
