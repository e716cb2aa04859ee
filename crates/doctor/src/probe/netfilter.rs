//! nftables: requests the generation of the rules (`NFT_MSG_GETGEN`) in a new network namespace.
//!
//! Sources: netlink(7), `linux/netfilter/nf_tables.h`. The request makes the kernel load the module nf_tables.

use std::io;

use rustix::{
    io::Errno,
    net::{
        AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType,
        netlink::{NETFILTER, SocketAddrNetlink},
        recv, sendto, socket_with,
    },
};
use syscall::namespace::{ThreadNamespace, unshare_thread};

use super::Outcome;

const NFNL_SUBSYS_NFTABLES: u16 = 10;
const NFT_MSG_NEWGEN: u16 = 15;
const NFT_MSG_GETGEN: u16 = 16;
const NLMSG_ERROR: u16 = 2;
const NLM_F_REQUEST: u16 = 1;
/// Length of a header and of `struct nfgenmsg`.
const LENGTH: u32 = 16 + 4;

pub(super) fn probe() -> Outcome {
    let thread = std::thread::Builder::new().name("nftables".into()).spawn(|| {
        unshare_thread(ThreadNamespace::Network)?;
        generation()
    });
    match thread.map(std::thread::JoinHandle::join) {
        Ok(Ok(result)) => Outcome::of(result),
        Ok(Err(_)) => Outcome::NotTried("the thread panicked".into()),
        Err(error) => Outcome::NotTried(format!("start a thread: {error}")),
    }
}

fn generation() -> io::Result<()> {
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, Some(NETFILTER))?;
    let mut request = Vec::with_capacity(LENGTH as usize);
    request.extend_from_slice(&LENGTH.to_ne_bytes());
    request.extend_from_slice(&(NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_GETGEN).to_ne_bytes());
    request.extend_from_slice(&NLM_F_REQUEST.to_ne_bytes());
    // Sequence number, port, and an nfgenmsg of zeros.
    request.resize(LENGTH as usize, 0);
    sendto(&socket, &request, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    // The kernel processes a request within the call, so a reply is available now.
    let mut reply = [0u8; 4096];
    let (_, length) = recv(&socket, &mut reply, RecvFlags::DONTWAIT)?;
    let kind = u16::from_ne_bytes([reply[4], reply[5]]);
    match kind {
        NLMSG_ERROR if length >= 20 => {
            let error = i32::from_ne_bytes([reply[16], reply[17], reply[18], reply[19]]);
            Err(Errno::from_raw_os_error(-error).into())
        }
        kind if kind == NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_NEWGEN => Ok(()),
        kind => Err(io::Error::other(format!("unexpected reply of type {kind}"))),
    }
}
