//! Data that a socket has sent and its peer has not read: `SIOCOUTQ` of unix(7).

use std::io;

use rustix::fd::{AsRawFd, BorrowedFd};

/// Returns the number of unread bytes including the kernel's overhead; 0 if the peer has read everything.
///
/// # Errors
/// `EINVAL`: the socket is listening, or the descriptor is not a socket.
pub fn unread_by_peer(socket: BorrowedFd<'_>) -> io::Result<u32> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the call writes one int, which outlives it.
    match unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ as _, &raw mut bytes) } {
        0 => Ok(bytes.unsigned_abs()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use rustix::{
        fd::AsFd,
        net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair},
    };

    use super::unread_by_peer;

    #[test]
    fn only_unread_data_is_counted() {
        let (one, other) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).expect("socketpair");
        assert_eq!(unread_by_peer(one.as_fd()).expect("get the queue size"), 0);
        send(&one, b"S", SendFlags::NOSIGNAL).expect("send");
        assert!(unread_by_peer(one.as_fd()).expect("get the queue size") > 0);
        let mut byte = [0];
        recv(&other, &mut byte, RecvFlags::empty()).expect("receive");
        assert_eq!(unread_by_peer(one.as_fd()).expect("get the queue size"), 0);
    }
}
