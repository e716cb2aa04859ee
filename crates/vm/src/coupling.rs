//! Couples the interfaces of a pod's network namespace, whichever network or plugin made them, with tap devices of a
//! virtual machine.
//!
//! ```text
//! node            namespace of the pod                          guest
//! vethab12 ◀────▶ eth0 ── ingress: redirect ──▶ vmtap2 ─ queue ▶ eth0 with the MAC address, addresses
//!                 eth0 ◀── redirect :ingress ── vmtap2 ◀ queue ─ and routes of the pod's eth0
//! ```
//!
//! The guest takes the place of the namespace's protocol stack: each interface of it has the MAC address of the one
//! that it is coupled with, and so the addresses, routes and permanent neighbors of [`couple`]'s [`Network`].
//!
//! The addresses stay on the interfaces of the namespace, where checks of ports, statistics and CNI's `CHECK` read
//! them. The node's kernel does not answer for them: a filter at the ingress takes each frame before the protocol stack
//! gets it. So processes of the node that are in the namespace cannot reach anything through a coupled interface, nor
//! the guest.
//!
//! # What can be coupled
//! Every interface that is up and carries Ethernet frames: veth, macvlan, VLANs, a device of the node. Others are
//! refused with their name: those that are down, that have no ARP or no MAC address (tun, WireGuard, ipvlan in mode L3,
//! VRF), ports of a bridge, those on top of another one of the pod, and every ipvlan. Loopback and the tunnel devices
//! that the kernel adds to each namespace are skipped.
//!
//! Only the main table is mirrored, neither other tables nor rules.
//!
//! # Lifetime
//! A tap exists while one of its queues is open. Then the filters that redirect to it drop all frames; the next
//! [`couple`] replaces them. All of it ends with the namespace.
//!
//! Requires the kernel's `tun`, `sch_ingress`, `cls_u32` and `act_mirred`. Sources: tc-u32(8), tc-mirred(8),
//! Documentation/networking/tuntap.rst; Kata Containers' `tcfilter` model.

mod interface;
mod mirror;
mod tap;

use std::os::fd::OwnedFd;

use agent_api::{Interface, Network};
use netns::Namespace;
use rtnl::{
    Link,
    netlink::{Batch, Socket},
};

use crate::error::{Error, ErrorKind};

/// Maximum number of interfaces that are coupled.
pub const INTERFACES_MAX: usize = 32;
/// Maximum number of addresses of all interfaces.
pub const ADDRESSES_MAX: usize = 256;
/// Maximum number of routes.
pub const ROUTES_MAX: usize = 256;
/// Maximum number of permanent neighbors.
pub const NEIGHBORS_MAX: usize = 256;
/// Maximum number of queues of a tap, which is the kernel's (`MAX_TAP_QUEUES`).
pub const QUEUES_MAX: usize = 256;

/// An interface that is coupled with a tap.
#[derive(Debug)]
pub struct Coupling {
    /// The interface as the guest has it.
    pub interface: Interface,
    /// Name of the tap, in the namespace of the pod.
    pub tap: String,
    /// Open queues of the tap, for the virtual machine monitor. They are nonblocking, and frames have a virtio header
    /// of 10 bytes (`TUNSETVNETHDRSZ` changes its size, `TUNSETOFFLOAD` permits frames without checksums and larger
    /// than the MTU).
    pub queues: Vec<OwnedFd>,
}

/// Couples every interface of a namespace, except loopback, with a new tap of this many queues. Returns the couplings,
/// and the network as the guest has to configure it.
///
/// It may be called again when the taps of an earlier call are gone. Blocks; the calling thread's namespace does not
/// change.
///
/// # Errors
/// `Invalid` for an interface that cannot be coupled, for a route that the guest cannot have and for more than the
/// maximum of anything; `System` if the kernel refuses an operation, `EBUSY` if a virtual machine monitor still has the
/// taps of an earlier call. After an error nothing is coupled that was not before.
pub fn couple(namespace: &Namespace, queues: usize) -> Result<(Vec<Coupling>, Network), Error> {
    if !(1..=QUEUES_MAX).contains(&queues) {
        let cause = format!("{queues} queues; 1 to {QUEUES_MAX} are possible");
        return Err(Error::new(ErrorKind::Invalid, "couple network interfaces", cause));
    }
    let coupled = namespace.enter(move || couple_here(queues));
    coupled.map_err(|error| system("enter network namespace", error))?
}

/// Returns the interfaces of a namespace that [`couple`] couples, in its order. Blocks.
///
/// # Errors
/// Those of [`couple`].
pub fn interfaces(namespace: &Namespace) -> Result<Vec<Interface>, Error> {
    let list = || -> Result<Vec<Interface>, Error> {
        let mut socket = Socket::route().map_err(|error| system("open netlink socket", error))?;
        let links = rtnl::links(&mut socket).map_err(|error| system("list network interfaces", error))?;
        Ok(mirror::network(&mut socket, &interface::select(links)?)?.interfaces)
    };
    namespace.enter(list).map_err(|error| system("enter network namespace", error))?
}

/// Couples the interfaces of the calling thread's namespace.
fn couple_here(queues: usize) -> Result<(Vec<Coupling>, Network), Error> {
    let mut socket = Socket::route().map_err(|error| system("open netlink socket", error))?;
    let links = rtnl::links(&mut socket).map_err(|error| system("list network interfaces", error))?;
    let links = interface::select(links)?;
    let network = mirror::network(&mut socket, &links)?;
    let mut couplings = Vec::new();
    for (link, interface) in links.iter().zip(&network.interfaces) {
        match tap::couple(&mut socket, link, queues) {
            Ok((tap, queues)) => couplings.push(Coupling { interface: interface.clone(), tap, queues }),
            Err(error) => {
                undo(&mut socket, &links[..couplings.len()]);
                return Err(error);
            }
        }
    }
    Ok((couplings, network))
}

/// Gives interfaces back to the protocol stack of the namespace. Their taps end with their queues.
fn undo(socket: &mut Socket, links: &[Link]) {
    let mut batch = Batch::new();
    links.iter().for_each(|link| rtnl::delete_ingress(&mut batch, link.index));
    // The error that led here is the one to return.
    let _ = socket.request_each(batch);
}

fn system(operation: impl Into<String>, cause: impl ToString) -> Error {
    Error::new(ErrorKind::System, operation, cause)
}
