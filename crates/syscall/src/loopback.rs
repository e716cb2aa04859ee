//! The loopback interface of the calling thread's network namespace. Source: rtnetlink(7).

use std::io;

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};

/// Encodes `nlmsghdr` and `ifinfomsg`, 16 bytes each: `RTM_NEWLINK` for index 1 with `IFF_UP`, requesting an
/// acknowledgement.
fn request() -> [u8; 32] {
    const RTM_NEWLINK: u16 = 16;
    const REQUEST_ACK: u16 = 0x1 | 0x4;
    const LOOPBACK_INDEX: i32 = 1;
    const IFF_UP: u32 = 1;
    let mut message = [0; 32];
    message[0..4].copy_from_slice(&32u32.to_ne_bytes());
    message[4..6].copy_from_slice(&RTM_NEWLINK.to_ne_bytes());
    message[6..8].copy_from_slice(&REQUEST_ACK.to_ne_bytes());
    message[20..24].copy_from_slice(&LOOPBACK_INDEX.to_ne_bytes());
    message[24..28].copy_from_slice(&IFF_UP.to_ne_bytes());
    message[28..32].copy_from_slice(&IFF_UP.to_ne_bytes());
    message
}

/// Sets the interface `lo` up.
///
/// # Errors
/// `EPERM` without `CAP_NET_ADMIN` in the user namespace that owns the network namespace.
pub fn up() -> io::Result<()> {
    // Protocol zero is NETLINK_ROUTE; a netlink socket without a peer sends to the kernel.
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    send(&socket, &request(), SendFlags::empty())?;
    let mut reply = [0u8; 128];
    let (_, length) = recv(&socket, &mut reply[..], RecvFlags::empty())?;
    // NLMSG_ERROR: the header, then the negated errno.
    let code = reply[..length].get(16..20).and_then(|bytes| bytes.try_into().ok()).map(i32::from_ne_bytes);
    match code {
        Some(0) => Ok(()),
        Some(errno) => Err(io::Error::from_raw_os_error(-errno)),
        None => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the netlink reply is shorter than its header")),
    }
}
