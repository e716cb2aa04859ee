//! nftables, veth and bridges, tried over netlink by a thread in a network namespace of its own, which ends with it.
//!
//! Sources: netlink(7), rtnetlink(7), `linux/netfilter/nf_tables.h`, `linux/if_link.h`. The requests make the kernel load
//! the modules.

use std::io;

use rustix::{
    io::Errno,
    net::{
        AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType,
        netlink::{NETFILTER, SocketAddrNetlink},
        recv, sendto, socket_with,
    },
};
use syscall::namespace::{ThreadNamespace, unshare_thread};

use super::Outcome;

const NFT_MSG_GETGEN: u16 = 10 << 8 | 16;
const RTM_NEWLINK: u16 = 16;
const NLMSG_ERROR: u16 = 2;
const NLM_F_REQUEST: u16 = 0x1;
const NLM_F_ACK: u16 = 0x4;
const NLM_F_CREATE_EXCLUSIVE: u16 = 0x600;
const IFLA_IFNAME: u16 = 3;
const IFLA_LINKINFO: u16 = 18;
const IFLA_INFO_KIND: u16 = 1;
/// Length of `struct nlmsghdr`.
const HEADER: usize = 16;

pub(super) struct Network {
    pub(super) nftables: Outcome,
    pub(super) veth: Outcome,
    pub(super) bridge: Outcome,
}

pub(super) fn probe() -> Network {
    let thread = std::thread::Builder::new().name("network".into()).spawn(|| -> io::Result<Network> {
        unshare_thread(ThreadNamespace::Network)?;
        Ok(Network {
            // The body is a `struct nfgenmsg`.
            nftables: Outcome::of(request(Some(NETFILTER), NFT_MSG_GETGEN, 0, &[0; 4])),
            veth: Outcome::of(create_link("veth")),
            bridge: Outcome::of(create_link("bridge")),
        })
    });
    let reason = match thread.map(std::thread::JoinHandle::join) {
        Ok(Ok(Ok(network))) => return network,
        Ok(Ok(Err(error))) => format!("create a network namespace: {error}"),
        Ok(Err(_)) => "the thread panicked".to_owned(),
        Err(error) => format!("start a thread: {error}"),
    };
    let not_tried = || Outcome::NotTried(reason.clone());
    Network { nftables: not_tried(), veth: not_tried(), bridge: not_tried() }
}

fn create_link(kind: &str) -> io::Result<()> {
    let name = attribute(IFLA_IFNAME, format!("probe-{kind}\0").as_bytes());
    let information = attribute(IFLA_LINKINFO, &attribute(IFLA_INFO_KIND, kind.as_bytes()));
    // A `struct ifinfomsg`, then attributes.
    // NETLINK_ROUTE is protocol 0.
    request(None, RTM_NEWLINK, NLM_F_ACK | NLM_F_CREATE_EXCLUSIVE, &[vec![0; 16], name, information].concat())
}

/// Encodes an attribute, padded to four bytes.
fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = (4 + value.len()) as u16;
    let mut attribute = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
    attribute.extend_from_slice(value);
    attribute.resize(attribute.len().next_multiple_of(4), 0);
    attribute
}

/// Sends a request and checks the reply.
fn request(protocol: Option<Protocol>, kind: u16, flags: u16, body: &[u8]) -> io::Result<()> {
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, protocol)?;
    let mut message = Vec::with_capacity(HEADER + body.len());
    message.extend_from_slice(&((HEADER + body.len()) as u32).to_ne_bytes());
    message.extend_from_slice(&kind.to_ne_bytes());
    message.extend_from_slice(&(NLM_F_REQUEST | flags).to_ne_bytes());
    // Sequence number and port.
    message.extend_from_slice(&[0; 8]);
    message.extend_from_slice(body);
    sendto(&socket, &message, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    // The kernel processes a request within the call, so a reply is available now.
    let mut reply = [0u8; 4096];
    let (_, length) = recv(&socket, &mut reply, RecvFlags::DONTWAIT)?;
    if length < HEADER + 4 {
        return Err(io::Error::other("the reply is truncated"));
    }
    // An acknowledgement is an error with the number 0.
    let error = i32::from_ne_bytes([reply[16], reply[17], reply[18], reply[19]]);
    match u16::from_ne_bytes([reply[4], reply[5]]) == NLMSG_ERROR && error != 0 {
        true => Err(Errno::from_raw_os_error(-error).into()),
        false => Ok(()),
    }
}
