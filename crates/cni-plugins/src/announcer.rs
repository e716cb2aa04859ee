//! Announcements of IPv4 addresses (RFC 5227, section 3), so that neighbours forget who had an address before.
//!
//! With `arp_notify` the kernel announces the addresses of a link within the request that sets the link up, and holds the
//! lock of all links until then. On a macvlan or bridge with 1000 pods this takes 10 ms, because the frame is delivered to
//! each of them. An [`Announcer`] sends the same frame from a thread of its own, without that lock.
//!
//! For IPv6 the kernel does this itself: with `ndisc_notify` it announces an address at the end of its duplicate address
//! detection, in the background.

use std::{
    io,
    net::{IpAddr, Ipv4Addr},
    sync::mpsc::{SyncSender, TrySendError, sync_channel},
    thread,
};

use netns::Namespace;
use rtnl::{
    Link,
    flags::{NO_ARP, UP},
    netlink::Socket,
};
use syscall::packet_socket;

use crate::{PluginResult, Request};

/// Maximum number of announcements that wait. Each holds the descriptor of a namespace.
const WAITING_MAX: usize = 64;
/// Ethernet protocol of ARP.
const ARP: u16 = 0x0806;

/// Announces addresses of pods to their neighbours. The default announces nothing: then the kernel does, before the
/// plugin returns. Clones share one thread, which ends with the last of them.
#[derive(Clone, Debug, Default)]
pub struct Announcer(Option<SyncSender<Announcement>>);

#[derive(Debug)]
struct Announcement {
    namespace: Namespace,
    link: u32,
    addresses: Vec<Ipv4Addr>,
}

impl Announcer {
    /// Starts the thread of an announcer.
    ///
    /// # Errors
    /// `EAGAIN` if the kernel permits no further thread.
    pub fn start() -> io::Result<Self> {
        let (sender, announcements) = sync_channel::<Announcement>(WAITING_MAX);
        let work = move || announcements.into_iter().for_each(Announcement::send);
        thread::Builder::new().name("announcer".into()).spawn(work)?;
        Ok(Self(Some(sender)))
    }

    /// Whether addresses are announced here, and not by the kernel when the link is set up.
    pub(crate) fn is_started(&self) -> bool {
        self.0.is_some()
    }
}

/// Has the addresses announced that the pod's link got. If too many announcements wait, this one does not.
pub(crate) fn announce(request: &Request, link: &Link, result: &PluginResult, interface: usize) {
    let Some(sender) = &request.announcer.0 else { return };
    let here = result.ips.iter().filter(|ip| ip.interface == Some(interface));
    let addresses: Vec<Ipv4Addr> = here.filter_map(|ip| ipv4(ip.address.address)).collect();
    let Some(Ok(namespace)) = request.namespace.as_ref().map(Namespace::try_clone) else { return };
    if addresses.is_empty() {
        return;
    }
    match sender.try_send(Announcement { namespace, link: link.index, addresses }) {
        Ok(()) => {}
        Err(TrySendError::Full(announcement) | TrySendError::Disconnected(announcement)) => announcement.send(),
    }
}

fn ipv4(address: IpAddr) -> Option<Ipv4Addr> {
    match address {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(_) => None,
    }
}

impl Announcement {
    /// An announcement may be lost on its way, too: then neighbours learn of the address when the pod sends.
    fn send(self) {
        let (link, addresses) = (self.link, self.addresses);
        let _ = self.namespace.enter(move || broadcast(link, &addresses));
    }
}

/// Sends the frames in the network namespace of the calling thread. Does nothing if the link is gone or down, or has no
/// ARP, as an ipvlan in mode `l3`.
fn broadcast(link: u32, addresses: &[Ipv4Addr]) -> io::Result<()> {
    let found = rtnl::link_by_index(&mut Socket::route()?, link)?;
    let Some(link) = found.filter(|link| link.flags & (UP | NO_ARP) == UP) else { return Ok(()) };
    let Ok(mac) = <[u8; 6]>::try_from(link.mac) else { return Ok(()) };
    addresses
        .iter()
        .try_for_each(|address| packet_socket::broadcast(link.index, ARP, &gratuitous_request(mac, *address)))
}

/// Returns an ARP request (RFC 826) whose sender and target have the same address.
fn gratuitous_request(mac: [u8; 6], address: Ipv4Addr) -> [u8; 28] {
    let mut packet = [0; 28];
    // Ethernet, IPv4, lengths of their addresses, request.
    packet[..8].copy_from_slice(&[0, 1, 8, 0, 6, 4, 0, 1]);
    packet[8..14].copy_from_slice(&mac);
    packet[14..18].copy_from_slice(&address.octets());
    packet[24..].copy_from_slice(&address.octets());
    packet
}
