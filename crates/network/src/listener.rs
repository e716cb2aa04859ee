//! Checks whether a process of the node already listens on a host port that is to be mapped to a pod.
//!
//! Destination NAT happens before the lookup of the node's sockets. Without this check a mapping would silently take a
//! listener's connections away.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use rustix::{
    io::Errno,
    net::{AddressFamily, SocketFlags, SocketType, bind, ipproto, socket_with, sockopt},
};

use crate::{Error, Protocol, nft::Mapping};

/// Reports whether a socket in the calling thread's network namespace has the port of this mapping on an address that
/// the mapping covers. For TCP only listening sockets count; connections that are being closed do not. For UDP any
/// socket counts. SCTP is not checked: kernels are often built without SCTP sockets.
///
/// # Errors
/// When no socket can be created or bound.
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
        // With SO_REUSEADDR a port that is used only by connections whose sockets have the option too is free; a port
        // with a listening socket is not (socket(7)).
        sockopt::set_socket_reuseaddr(&socket, true)?;
    }
    match bind(&socket, &SocketAddr::new(mapping.host_ip.unwrap_or(any), mapping.host_port)) {
        Err(Errno::ADDRINUSE) => Ok(true),
        // An address that the node does not have (yet) cannot have a listener.
        Err(Errno::ADDRNOTAVAIL) | Ok(()) => Ok(false),
        Err(errno) => Err(errno),
    }
}
