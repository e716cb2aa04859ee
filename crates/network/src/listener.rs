//! Whether a process of the node already has a host port that is to lead to a pod.
//!
//! The translation of addresses comes before the node's sockets, so without this check a mapping takes a listener's
//! connections away, and nobody is notified.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use rustix::{
    io::Errno,
    net::{AddressFamily, SocketFlags, SocketType, bind, ipproto, socket_with, sockopt},
};

use crate::{Error, Protocol, nft::Mapping};

/// Returns whether a socket of the calling thread's network namespace has the port of this mapping on an address that
/// the mapping is for. TCP: one that listens; connections that are about to end do not count. UDP: any. SCTP is not
/// looked at: kernels are often built without its sockets.
///
/// # Errors
/// The kernel's, where no socket can be made.
pub(crate) fn has_port(mapping: &Mapping) -> Result<bool, Error> {
    let failed = |cause: Errno| {
        let object = format!("host port {}/{}", mapping.host_port, mapping.protocol);
        Error::kernel("look for a listener on", object, io::Error::from(cause))
    };
    taken(mapping).map_err(failed)
}

fn taken(mapping: &Mapping) -> Result<bool, Errno> {
    let (kind, protocol) = match mapping.protocol {
        Protocol::Tcp => (SocketType::STREAM, ipproto::TCP),
        Protocol::Udp => (SocketType::DGRAM, ipproto::UDP),
        Protocol::Sctp => return Ok(false),
    };
    let (family, any) = match mapping.address {
        IpAddr::V4(_) => (AddressFamily::INET, IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
        IpAddr::V6(_) => (AddressFamily::INET6, IpAddr::V6(Ipv6Addr::UNSPECIFIED)),
    };
    let socket = socket_with(family, kind, SocketFlags::CLOEXEC, Some(protocol))?;
    if family == AddressFamily::INET6 {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    if kind == SocketType::STREAM {
        // With it a port that only connections use is free, where their sockets have it, too; one that is listened on
        // is not (socket(7)).
        sockopt::set_socket_reuseaddr(&socket, true)?;
    }
    match bind(&socket, &SocketAddr::new(mapping.host_ip.unwrap_or(any), mapping.host_port)) {
        Err(Errno::ADDRINUSE) => Ok(true),
        // An address that the node does not have (yet) has no listener.
        Err(Errno::ADDRNOTAVAIL) | Ok(()) => Ok(false),
        Err(errno) => Err(errno),
    }
}
