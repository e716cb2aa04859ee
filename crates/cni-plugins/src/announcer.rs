//! Announcements of IPv4 addresses (RFC 5227, section 3), so that neighbours forget who had an address before.
//!
//! With `arp_notify` the kernel announces the addresses of a link within the request that sets the link up, and holds the
//! lock of all links until then. On a macvlan or bridge with 1000 pods this takes 10 ms, because the frame is delivered to
//! each of them. An [`Announcer`] sends the same frame from threads of its own, without that lock. The type `tap`
//! leaves it to the kernel.
//!
//! For IPv6 the kernel does this itself: with `ndisc_notify` it announces an address at the end of its duplicate address
//! detection, in the background.

use std::{
    io,
    net::{IpAddr, Ipv4Addr},
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    },
    thread,
};

use netns::Namespace;
use rtnl::{
    Link,
    flags::{NO_ARP, UP},
    netlink::Socket,
};
use syscall::packet_socket::PacketSocket;

use crate::{PluginResult, Request};

/// Maximum number of announcements that wait. Each holds the descriptor of a namespace.
const WAITING_MAX: usize = 128;
/// Number of threads. Each sends about 60 announcements in a second: closing the socket takes as long as that.
const THREADS: usize = 4;
/// How often an announcement is sent again because the link got another MAC address in the meantime.
const REPEATS: usize = 2;
/// Ethernet protocol of ARP.
const ARP: u16 = 0x0806;

/// Announces IPv4 addresses of pods to their neighbours. The default value has no threads; the kernel then announces
/// addresses, before the plugin returns. Clones share the threads, which end with the last of them.
#[derive(Clone, Debug, Default)]
pub struct Announcer(Option<SyncSender<Announcement>>);

#[derive(Debug)]
struct Announcement {
    namespace: Namespace,
    link: u32,
    addresses: Vec<Ipv4Addr>,
}

impl Announcer {
    /// Starts the threads of an announcer.
    ///
    /// # Errors
    /// `EAFNOSUPPORT` if the kernel does not have the module `af_packet`, `EPERM` without `CAP_NET_RAW`; `EAGAIN` if the
    /// kernel permits no further thread.
    pub fn start() -> io::Result<Self> {
        PacketSocket::open()?;
        let (sender, receiver) = sync_channel::<Announcement>(WAITING_MAX);
        let receiver = Arc::new(Mutex::new(receiver));
        // The first announcement starts the other threads: a node without pods does not have them.
        spawn(move || {
            let Some(first) = next(&receiver) else { return };
            for _ in 1..THREADS {
                let receiver = Arc::clone(&receiver);
                // With fewer threads, announcements are later.
                let _ = spawn(move || std::iter::from_fn(|| next(&receiver)).for_each(Announcement::send));
            }
            first.send();
            std::iter::from_fn(|| next(&receiver)).for_each(Announcement::send);
        })?;
        Ok(Self(Some(sender)))
    }

    /// Whether addresses are announced here, and not by the kernel when the link is set up.
    pub(crate) fn is_started(&self) -> bool {
        self.0.is_some()
    }
}

fn spawn(work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name("announcer".into()).spawn(work).map(drop)
}

/// Waits for an announcement; returns `None` at the end of the announcer.
fn next(receiver: &Mutex<Receiver<Announcement>>) -> Option<Announcement> {
    receiver.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()
}

/// Has the addresses announced that the pod's link got. If the queue is full, the calling thread sends them.
pub(crate) fn announce(request: &Request, link: &Link, result: &PluginResult, interface: usize) {
    let Some(sender) = &request.announcer.0 else { return };
    let of_link = result.ips.iter().filter(|ip| ip.interface == Some(interface));
    let addresses: Vec<Ipv4Addr> = of_link.filter_map(|ip| ipv4(ip.address.address)).collect();
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
    /// Errors are ignored: the pod may be gone. Neighbours also learn of an address when the pod sends.
    fn send(self) {
        let (link, addresses) = (self.link, self.addresses);
        let _ = self.namespace.enter(move || broadcast(link, &addresses));
    }
}

/// Sends the frames in the network namespace of the calling thread. Does nothing if the link is gone or down, or has no
/// ARP, as an ipvlan in mode `l3`.
fn broadcast(link: u32, addresses: &[Ipv4Addr]) -> io::Result<()> {
    let (mut links, frames) = (Socket::route()?, PacketSocket::open()?);
    let mut announced = None;
    for _ in 0..=REPEATS {
        let Some(mac) = mac_address(&mut links, link)?.filter(|mac| announced != Some(*mac)) else { break };
        for address in addresses {
            frames.broadcast(link, ARP, &gratuitous_request(mac, *address))?;
        }
        // A change of the address may have been announced before this frame was: the last one must be right.
        announced = Some(mac);
    }
    Ok(())
}

/// Returns the MAC address of a link that uses ARP; `None` for any other.
fn mac_address(links: &mut Socket, link: u32) -> io::Result<Option<[u8; 6]>> {
    let found = rtnl::link_by_index(links, link)?;
    Ok(found.filter(|link| link.flags & (UP | NO_ARP) == UP).and_then(|link| link.mac.try_into().ok()))
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
