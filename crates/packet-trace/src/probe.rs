//! The packet that is traced, and the answer to it.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

use netns::Namespace;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::OwnedFd,
    io::Errno,
    net::{
        AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, connect, getsockname, ipproto, recv, send,
        sockopt,
    },
    rand::{GetRandomFlags, getrandom},
};
use serde::Serialize;

/// Which packet is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// An echo request of ICMP, as ping(8) sends it.
    Echo,
    /// The first packet of a TCP connection to a port; the connection is closed at once.
    Tcp(u16),
    /// A UDP datagram of one zero byte to a port.
    Udp(u16),
}

/// What came back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "answer", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Answer {
    /// The destination answered.
    Answered {
        /// Time between packet and answer in microseconds.
        microseconds: u64,
    },
    /// The destination, or a firewall, refused the packet.
    Refused,
    /// The packet could not be sent, or was sent back.
    Unreachable {
        /// The kernel's error.
        reason: String,
    },
    /// Nothing came back in time.
    Silent,
}

const ICMP: u8 = 1;
const ICMP6: u8 = 58;
const TCP: u8 = 6;
const UDP: u8 = 17;
/// Where the identifier of ICMP echo, or the port, is in the transport header: of a packet, and of its answer.
pub(crate) type Offsets = [u32; 2];

impl Probe {
    /// Returns the number of the transport protocol.
    pub(crate) fn protocol(self, is_ipv4: bool) -> u8 {
        match self {
            Self::Echo if is_ipv4 => ICMP,
            Self::Echo => ICMP6,
            Self::Tcp(_) => TCP,
            Self::Udp(_) => UDP,
        }
    }

    pub(crate) fn offsets(self) -> Offsets {
        match self {
            Self::Echo => [4, 4],
            Self::Tcp(_) | Self::Udp(_) => [0, 2],
        }
    }

    /// Returns the protocol for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Echo => "icmp",
            Self::Tcp(_) => "tcp",
            Self::Udp(_) => "udp",
        }
    }

    pub(crate) fn port(self) -> u16 {
        match self {
            Self::Echo => 0,
            Self::Tcp(port) | Self::Udp(port) => port,
        }
    }
}

/// A socket in a pod that is about to send the packet.
pub(crate) struct Prepared {
    socket: OwnedFd,
    probe: Probe,
    destination: IpAddr,
    /// The port, or the identifier of ICMP echo, by which the packet is recognised.
    pub(crate) mark: u16,
}

impl Prepared {
    pub(crate) fn new(namespace: &Namespace, probe: Probe, destination: IpAddr) -> Result<Self, netns::Error> {
        let family = if destination.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let (kind, protocol) = match probe {
            Probe::Echo if destination.is_ipv4() => (SocketType::RAW, Some(ipproto::ICMP)),
            Probe::Echo => (SocketType::RAW, Some(ipproto::ICMPV6)),
            Probe::Tcp(_) => (SocketType::STREAM, None),
            Probe::Udp(_) => (SocketType::DGRAM, None),
        };
        let socket = namespace.socket(family, kind, protocol, SocketFlags::NONBLOCK)?;
        let mark = match probe {
            Probe::Echo => random(),
            _ => bound_port(&socket, destination.is_ipv4()).map_err(|cause| netns::Error::Kernel {
                operation: "bind",
                object: "a port".to_owned(),
                cause,
            })?,
        };
        Ok(Self { socket, probe, destination, mark })
    }

    /// Sends the packet and waits for the answer.
    pub(crate) fn send(&self, patience: Duration) -> Answer {
        let begin = Instant::now();
        let outcome = match self.probe {
            Probe::Tcp(_) => self.connect(begin + patience),
            _ => self.exchange(begin + patience),
        };
        match outcome {
            Ok(true) => {
                Answer::Answered { microseconds: u64::try_from(begin.elapsed().as_micros()).unwrap_or(u64::MAX) }
            }
            Ok(false) => Answer::Silent,
            Err(Errno::CONNREFUSED) => Answer::Refused,
            Err(errno) => Answer::Unreachable { reason: io::Error::from(errno).to_string() },
        }
    }

    fn address(&self) -> SocketAddr {
        (self.destination, self.probe.port()).into()
    }

    fn connect(&self, deadline: Instant) -> Result<bool, Errno> {
        match connect(&self.socket, &self.address()) {
            Err(Errno::INPROGRESS) => {}
            done => return done.map(|()| true),
        }
        if !wait(&self.socket, PollFlags::OUT, deadline)? {
            return Ok(false);
        }
        sockopt::socket_error(&self.socket)?.map(|()| true)
    }

    fn exchange(&self, deadline: Instant) -> Result<bool, Errno> {
        connect(&self.socket, &self.address())?;
        let packet = match self.probe {
            Probe::Echo => echo_request(self.destination.is_ipv4(), self.mark),
            _ => vec![0],
        };
        send(&self.socket, &packet, SendFlags::empty())?;
        let mut buffer = [0; 1500];
        while wait(&self.socket, PollFlags::IN, deadline)? {
            match recv(&self.socket, &mut buffer[..], RecvFlags::DONTWAIT) {
                Ok((length, _)) if self.is_answer(&buffer[..length.min(buffer.len())]) => return Ok(true),
                Ok(_) | Err(Errno::AGAIN) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(false)
    }

    /// Raw sockets receive all messages of ICMP, those of IPv4 with the IP header.
    fn is_answer(&self, packet: &[u8]) -> bool {
        let reply = match (self.probe, self.destination.is_ipv4()) {
            (Probe::Echo, true) => {
                packet.get(usize::from(packet[0] & 15) * 4..).filter(|icmp| icmp.first() == Some(&0))
            }
            (Probe::Echo, false) => Some(packet).filter(|icmp| icmp.first() == Some(&129)),
            _ => return true,
        };
        reply.and_then(|reply| reply.get(4..6)) == Some(&self.mark.to_be_bytes())
    }
}

/// Waits until the socket is ready; `false` after the deadline.
fn wait(socket: &OwnedFd, events: PollFlags, deadline: Instant) -> Result<bool, Errno> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).unwrap_or(Timespec { tv_sec: 0, tv_nsec: 0 });
        match poll(&mut [PollFd::new(socket, events)], Some(&timeout)) {
            Ok(0) if left == Duration::ZERO => return Ok(false),
            Ok(0) | Err(Errno::INTR) => {}
            ready => return ready.map(|_| true),
        }
    }
}

fn bound_port(socket: &OwnedFd, is_ipv4: bool) -> io::Result<u16> {
    let any: IpAddr = if is_ipv4 { [0; 4].into() } else { [0; 16].into() };
    bind(socket, &SocketAddr::from((any, 0)))?;
    let bound = SocketAddr::try_from(getsockname(socket)?)?;
    Ok(bound.port())
}

fn random() -> u16 {
    let mut bytes = [0; 2];
    match getrandom(&mut bytes, GetRandomFlags::empty()) {
        // Zero is the port of the other side.
        Ok(_) => u16::from_ne_bytes(bytes).max(1),
        Err(_) => u16::try_from(std::process::id() & 0x7fff).unwrap_or(0).max(1),
    }
}

/// Returns an echo request. The kernel computes the checksum of ICMPv6.
fn echo_request(is_ipv4: bool, identifier: u16) -> Vec<u8> {
    let [high, low] = identifier.to_be_bytes();
    let kind = if is_ipv4 { 8 } else { 128 };
    let mut packet = vec![kind, 0, 0, 0, high, low, 0, 1];
    packet.extend_from_slice(b"pinion network trace");
    if is_ipv4 {
        let sum: u32 = packet.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
        let folded = (sum & 0xffff) + (sum >> 16);
        let checksum = !(u16::try_from((folded & 0xffff) + (folded >> 16)).unwrap_or(u16::MAX));
        packet[2..4].copy_from_slice(&checksum.to_be_bytes());
    }
    packet
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_of_an_echo_request_is_right() {
        let packet = echo_request(true, 0xfffe);
        let sum: u32 = packet.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
        assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff);
    }
}
