//! Options of netlink sockets. Source: netlink(7).

use std::io;

use rustix::fd::{AsFd, AsRawFd};

/// An option that is on or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetlinkOption {
    /// Errors come without the request that caused them (`NETLINK_CAP_ACK`, Linux 4.2).
    ShortErrors,
    /// Errors come with the kernel's words (`NETLINK_EXT_ACK`, Linux 4.12).
    Explain,
    /// Requests are checked whole, and dumps filtered (`NETLINK_GET_STRICT_CHK`, Linux 4.20).
    Strict,
}

/// Turns an option on.
///
/// # Errors
/// `ENOPROTOOPT` on a kernel that does not have it.
pub fn enable(socket: impl AsFd, option: NetlinkOption) -> io::Result<()> {
    let option = match option {
        NetlinkOption::ShortErrors => libc::NETLINK_CAP_ACK,
        NetlinkOption::Explain => libc::NETLINK_EXT_ACK,
        NetlinkOption::Strict => 12,
    };
    let on: libc::c_int = 1;
    // SAFETY: the descriptor is open for the call; the kernel reads four bytes of `on`, which outlives it.
    let done = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_NETLINK,
            option,
            (&raw const on).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
