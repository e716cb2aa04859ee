//! Sockets of a namespace, opened from anywhere. Only socket(2) happens in the namespace; the rest happens on the calling
//! thread, because a socket stays in the namespace it was created in.

use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};

use rustix::{
    fd::OwnedFd,
    io::Errno,
    net::{AddressFamily, Protocol, RawProtocol, SocketFlags, SocketType, bind, connect, listen, socket_with, sockopt},
};

use crate::{Error, Namespace};

impl Namespace {
    /// Opens a socket in this namespace. Takes about 12 µs, of which 10 are spent on reaching a helper thread: to open many
    /// at a time, open them all in one [`Namespace::enter`].
    ///
    /// # Errors
    /// The kernel's error.
    pub fn socket(
        &self,
        family: AddressFamily,
        kind: SocketType,
        protocol: Option<Protocol>,
        flags: SocketFlags,
    ) -> Result<OwnedFd, Error> {
        self.enter(move || socket_with(family, kind, flags | SocketFlags::CLOEXEC, protocol))?
            .map_err(|e| Error::kernel("open", "socket in network namespace", e))
    }

    /// Opens a netlink socket in this namespace, which is not bound and joined no group. `protocol` is one of `NETLINK_*`
    /// of linux/netlink.h: 0 is rtnetlink, 12 nftables and conntrack.
    ///
    /// # Errors
    /// `EPROTONOSUPPORT` if the kernel does not have this protocol.
    pub fn netlink(&self, protocol: u32) -> Result<OwnedFd, Error> {
        let protocol = RawProtocol::new(protocol).map(Protocol::from_raw);
        self.socket(AddressFamily::NETLINK, SocketType::RAW, protocol, SocketFlags::empty())
    }

    /// Binds a listener of TCP in this namespace, with `SO_REUSEADDR` and the longest queue that the kernel permits.
    ///
    /// # Errors
    /// `EADDRINUSE`, `EADDRNOTAVAIL`.
    pub fn tcp_listener(&self, address: SocketAddr) -> Result<TcpListener, Error> {
        let socket = self.internet_socket(address, SocketType::STREAM, SocketFlags::empty())?;
        let fail = |errno: Errno| Error::kernel("listen on", address.to_string(), errno);
        sockopt::set_socket_reuseaddr(&socket, true).map_err(fail)?;
        bind(&socket, &address).map_err(fail)?;
        // The kernel reduces it to net.core.somaxconn of the namespace.
        listen(&socket, i32::MAX).map_err(fail)?;
        Ok(socket.into())
    }

    /// Connects to an address that is reachable from this namespace; waits for the connection.
    ///
    /// # Errors
    /// `ECONNREFUSED`, `EHOSTUNREACH`, `ETIMEDOUT`.
    pub fn tcp_stream(&self, address: SocketAddr) -> Result<TcpStream, Error> {
        let socket = self.internet_socket(address, SocketType::STREAM, SocketFlags::empty())?;
        connect(&socket, &address).map_err(|e| Error::kernel("connect to", address.to_string(), e))?;
        Ok(socket.into())
    }

    /// Binds a socket of UDP in this namespace.
    ///
    /// # Errors
    /// `EADDRINUSE`, `EADDRNOTAVAIL`.
    pub fn udp_socket(&self, address: SocketAddr) -> Result<UdpSocket, Error> {
        let socket = self.internet_socket(address, SocketType::DGRAM, SocketFlags::empty())?;
        bind(&socket, &address).map_err(|e| Error::kernel("bind", address.to_string(), e))?;
        Ok(socket.into())
    }

    pub(crate) fn internet_socket(
        &self,
        address: SocketAddr,
        kind: SocketType,
        flags: SocketFlags,
    ) -> Result<OwnedFd, Error> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        self.socket(family, kind, None, flags)
    }
}
