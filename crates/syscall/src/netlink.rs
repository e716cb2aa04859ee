//! Options of netlink sockets. Source: netlink(7).

use std::io;

use rustix::fd::{AsFd, AsRawFd};

/// A boolean option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetlinkOption {
    /// Error messages do not contain the request (`NETLINK_CAP_ACK`, Linux 4.2).
    CapAck,
    /// Error messages contain an explanation (`NETLINK_EXT_ACK`, Linux 4.12).
    ExtAck,
    /// Requests are checked strictly, and dumps are filtered (`NETLINK_GET_STRICT_CHK`, Linux 4.20).
    StrictCheck,
}

/// Turns an option on.
///
/// # Errors
/// `ENOPROTOOPT` on a kernel that does not support it.
pub fn enable(socket: impl AsFd, option: NetlinkOption) -> io::Result<()> {
    let option = match option {
        NetlinkOption::CapAck => libc::NETLINK_CAP_ACK,
        NetlinkOption::ExtAck => libc::NETLINK_EXT_ACK,
        NetlinkOption::StrictCheck => 12,
    };
    let on: libc::c_int = 1;
    // SAFETY: the descriptor is open for the call; the kernel reads four bytes of `on`, which outlives it.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_NETLINK,
            option,
            (&raw const on).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
