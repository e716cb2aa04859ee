//! Packets that are sent on a link without an address of a protocol: packet(7).

use std::{io, mem::size_of};

use rustix::{
    fd::{AsRawFd, OwnedFd},
    net::{AddressFamily, Protocol, SocketFlags, SocketType, socket_with},
};

/// Bytes of an Ethernet address.
const ADDRESS: usize = 6;

/// A socket that sends packets on the links of the network namespace in which it was opened.
///
/// Dropping it waits until no processor uses it anymore, a grace period of RCU: 8 to 64 ms (`packet_release` in
/// `net/packet/af_packet.c`).
#[derive(Debug)]
pub struct PacketSocket(OwnedFd);

impl PacketSocket {
    /// Opens a socket that receives nothing in the network namespace of the calling thread. Requires `CAP_NET_RAW`.
    ///
    /// # Errors
    /// `EAFNOSUPPORT` if the kernel does not have the module `af_packet`, `EPERM`.
    pub fn open() -> io::Result<Self> {
        let socket = socket_with(AddressFamily::PACKET, SocketType::DGRAM, SocketFlags::CLOEXEC, None::<Protocol>)?;
        Ok(Self(socket))
    }

    /// Sends a packet of an Ethernet protocol to all stations on a link. The kernel adds the header of the link.
    ///
    /// # Errors
    /// `ENXIO` if the namespace does not have the link, `ENETDOWN` if it is down; [`io::ErrorKind::InvalidInput`] for an index
    /// that no link can have.
    pub fn broadcast(&self, link: u32, protocol: u16, packet: &[u8]) -> io::Result<()> {
        let mut address = libc::sockaddr_ll {
            sll_family: libc::AF_PACKET as u16,
            sll_protocol: protocol.to_be(),
            sll_ifindex: i32::try_from(link).map_err(|_| io::ErrorKind::InvalidInput)?,
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: ADDRESS as u8,
            sll_addr: [0; 8],
        };
        address.sll_addr[..ADDRESS].fill(0xff);
        // SAFETY: the kernel reads the packet and the address, which outlive the call, and no more than their lengths.
        let sent = unsafe {
            libc::sendto(
                self.0.as_raw_fd(),
                packet.as_ptr().cast(),
                packet.len(),
                libc::MSG_DONTWAIT,
                (&raw const address).cast(),
                size_of::<libc::sockaddr_ll>() as libc::socklen_t,
            )
        };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::PacketSocket;

    #[test]
    fn a_link_that_does_not_exist_is_an_error() {
        let socket = PacketSocket::open().expect("a socket");
        let error = socket.broadcast(0x7fff_fff0, 0x0806, &[0; 28]).expect_err("the link does not exist");
        assert_eq!(error.raw_os_error(), Some(libc::ENXIO));
        let error = socket.broadcast(u32::MAX, 0x0806, &[0; 28]).expect_err("no link can have this index");
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
    }
}
