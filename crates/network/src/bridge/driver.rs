//! Connects pods to bridges.

use std::{
    collections::HashMap,
    net::IpAddr,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use rustix::{fd::AsFd, io::Errno};

use super::{BridgeOptions, sysctl};
use crate::{
    Error,
    firewall::Firewall,
    ipam::{Leases, Route},
};
use rtnl::{
    BridgeLink, Veth,
    netlink::{Batch, Refusal, Socket},
    subnet::{Subnet, octets},
};

/// The bridges of the node.
#[derive(Debug)]
pub(crate) struct Bridges {
    socket: Mutex<Socket>,
    /// Index and options by name, of bridges that are configured.
    ready: Mutex<HashMap<String, (u32, BridgeOptions)>>,
    state: PathBuf,
}

/// A connected pod: its link, addresses and routes.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    pub(crate) bridge: String,
    pub(crate) bridge_mac: String,
    pub(crate) host: String,
    pub(crate) mac: String,
    /// Addresses with prefix lengths, and their gateways.
    pub(crate) addresses: Vec<(Subnet, IpAddr)>,
    pub(crate) routes: Vec<Route>,
}

/// Returns the name of the node's end of an attachment's link: `pin` and eleven hexadecimal digits. They are the first of
/// the sandbox for its primary attachment, and a hash for the others.
pub(crate) fn host_link(sandbox: &str) -> String {
    let head = sandbox
        .get(..11)
        .filter(|head| !sandbox.contains('@') && head.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')));
    match head {
        Some(head) => format!("pin{head}"),
        None => {
            // FNV-1a, because its result is the same in every version of this program.
            let hash =
                sandbox.bytes().fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
            format!("pin{:011x}", hash & 0xfff_ffff_ffff)
        }
    }
}

/// Reports whether a name has the format of [`host_link`].
pub(crate) fn is_host_link(name: &str) -> bool {
    name.len() == 14
        && name.strip_prefix("pin").is_some_and(|rest| rest.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')))
}

/// Returns a locally administered MAC address that is derived from the IP address, so that entries in neighbours' ARP
/// caches stay valid when the address is used again.
fn mac(address: IpAddr) -> [u8; 6] {
    let bytes = octets(address);
    let tail = &bytes[bytes.len() - 4..];
    [0x0a, 0x58, tail[0], tail[1], tail[2], tail[3]]
}

/// Returns the MAC address that a pod with this first address gets unless it requests another one.
pub(crate) fn default_mac(address: IpAddr) -> String {
    mac_text(mac(address))
}

fn mac_text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

impl Bridges {
    /// Opens a socket in the network namespace of the calling thread. Changed sysctls are noted in `state`.
    pub(crate) fn open(state: &Path) -> Result<Self, Error> {
        let socket = Socket::route().map_err(|e| Error::kernel("open", "rtnetlink socket", e))?;
        Ok(Self { socket: Mutex::new(socket), ready: Mutex::default(), state: state.to_owned() })
    }

    pub(crate) fn with_socket<T>(&self, work: impl FnOnce(&mut Socket) -> T) -> T {
        work(&mut self.socket.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Creates the bridge and configures the node where this is missing; returns the bridge's index.
    pub(crate) fn ensure(&self, options: &BridgeOptions, firewall: &Firewall) -> Result<u32, Error> {
        let mut ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((index, known)) = ready.get(&options.bridge)
            && known == options
        {
            return Ok(*index);
        }
        let index = self.with_socket(|socket| make(socket, options))?;
        let subnets = options.subnets();
        let name = &options.bridge;
        sysctl::bridge(name, subnets.iter().any(|s| s.address.is_ipv6()))?;
        self.with_socket(|socket| address(socket, options, index))?;
        if options.gateway {
            sysctl::forwarding(&subnets, &self.state)?;
        }
        firewall.add_network(name, &subnets, options.masquerade, options.scope())?;
        ready.insert(name.clone(), (index, options.clone()));
        Ok(index)
    }

    fn forget(&self, name: &str) {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }

    /// Leases addresses for a pod, one from each set of ranges: the requested one, if there is one in its subnet.
    pub(crate) fn lease(
        options: &BridgeOptions,
        leases: &Leases,
        (sandbox, interface): (&str, &str),
        requested: &[IpAddr],
    ) -> Result<Vec<(Subnet, IpAddr)>, Error> {
        let mut taken: Vec<(Subnet, IpAddr)> = Vec::new();
        for (index, set) in options.ipam.sets.iter().enumerate() {
            let requested = set.first().and_then(|range| {
                let address = requested.iter().find(|address| range.subnet.contains(**address))?;
                Some((*address, *range))
            });
            let leased = match requested {
                None => leases.take(index, set, sandbox, interface).map_err(Error::from),
                Some((address, range)) => match leases.take_one(index, address, sandbox, interface) {
                    Ok(true) => Ok((address, range)),
                    Ok(false) => Err(Error::AddressTaken(address)),
                    Err(error) => Err(error.into()),
                },
            };
            match leased {
                Ok((address, range)) => taken.push((range.subnet.with(address), range.gateway)),
                Err(error) => {
                    let addresses: Vec<IpAddr> = taken.iter().map(|(s, _)| s.address).collect();
                    leases.release(&addresses, sandbox)?;
                    return Err(error);
                }
            }
        }
        Ok(taken)
    }

    /// Reports whether the node has a link of a name.
    pub(crate) fn has_link(&self, name: &str) -> Result<bool, Error> {
        let link = self.with_socket(|socket| rtnl::link_by_name(socket, name));
        link.map(|link| link.is_some()).map_err(|e| Error::kernel("look for link", name, e))
    }

    /// Returns the subnets that the node has routes to, without default routes.
    pub(crate) fn routes(&self) -> Result<Vec<Subnet>, Error> {
        let routes = self.with_socket(rtnl::subnets_of_routes).map_err(|e| Error::kernel("list", "routes", e))?;
        Ok(routes.into_iter().map(|(subnet, _)| subnet).filter(|subnet| subnet.prefix > 0).collect())
    }

    /// Has the port of a pod exchange no frames with other ports of this kind.
    fn isolate(&self, options: &BridgeOptions, host: &str) -> Result<(), Error> {
        let isolate = |socket: &mut Socket| {
            let link = rtnl::link_by_name(socket, host)?.ok_or(Refusal::from(Errno::NODEV))?;
            let mut batch = Batch::new();
            rtnl::BridgePort { hairpin: options.hairpin, isolated: true }.set(&mut batch, link.index);
            socket.request(batch)
        };
        self.with_socket(isolate).map_err(|e| Error::kernel("isolate", format!("bridge port {host}"), e))
    }

    /// Creates the pod's link and configures both ends. The addresses are leased and the intent is on record.
    pub(crate) fn connect(
        &self,
        options: &BridgeOptions,
        firewall: &Firewall,
        pod: &Pod<'_>,
    ) -> Result<Endpoint, Error> {
        let host = host_link(pod.sandbox);
        let first = pod.addresses.first().map(|(subnet, _)| subnet.address);
        let first = first.ok_or_else(|| Error::config(&options.bridge, "no address ranges are configured"))?;
        let mac = pod.mac.unwrap_or_else(|| mac(first));
        let ipv6 = pod.addresses.iter().any(|(subnet, _)| subnet.address.is_ipv6());
        let veth = |bridge| Veth {
            host: &host,
            bridge,
            peer: pod.interface,
            mac,
            mtu: options.mtu,
            namespace: pod.namespace.as_fd(),
        };
        let make = |index| {
            let mut batch = Batch::new();
            rtnl::add_veth(&mut batch, &veth(index));
            rtnl::disable_ipv6_address_generation(&mut batch, &host);
            if options.hairpin {
                rtnl::set_hairpin(&mut batch, &host);
            }
            rtnl::set_up(&mut batch, &host);
            self.with_socket(|socket| socket.request(batch))
        };
        let mut created = make(self.ensure(options, firewall)?);
        if created.as_ref().is_err_and(|refusal| {
            refusal.index == 0 && matches!(refusal.errno, Errno::NODEV | Errno::INVAL | Errno::NXIO)
        }) {
            // The cached bridge is gone: another program deleted it.
            self.forget(&options.bridge);
            created = make(self.ensure(options, firewall)?);
        }
        created.map_err(|e| Error::kernel("create link", format!("{host} on bridge {}", options.bridge), e))?;
        if options.named.is_some_and(|named| named.isolated) {
            self.isolate(options, &host)?;
        }
        let gateways: Vec<IpAddr> = pod.addresses.iter().map(|(_, gateway)| *gateway).collect();
        let mut routes = options.routes(&gateways);
        // Another network of the pod has the default routes; a second one of the same destination would be refused.
        routes.retain(|route| pod.is_primary || route.dst.prefix > 0);
        let setup = PodSetup {
            interface: pod.interface.to_owned(),
            ipv6,
            addresses: pod.addresses.to_vec(),
            routes: routes.clone(),
        };
        pod.namespace.enter(move || setup.set_up())??;
        let bridge_mac = mac_text(bridge_mac(options));
        Ok(Endpoint {
            bridge: options.bridge.clone(),
            bridge_mac,
            host,
            mac: mac_text(mac),
            addresses: pod.addresses.to_vec(),
            routes,
        })
    }

    /// Deletes a bridge; succeeds if it does not exist.
    pub(crate) fn delete(&self, name: &str) -> Result<(), Error> {
        self.forget(name);
        let mut batch = Batch::new();
        rtnl::delete(&mut batch, name);
        match self.with_socket(|socket| socket.request(batch)) {
            Ok(()) => Ok(()),
            Err(refusal) if refusal.errno == Errno::NODEV => Ok(()),
            Err(refusal) => Err(Error::kernel("delete bridge", name, refusal)),
        }
    }

    /// Deletes a bridge of a named network, unless the link of its name is not a bridge or has ports: then others use it.
    pub(crate) fn delete_unused(&self, name: &str) -> Result<(), Error> {
        let fail = |refusal| Error::kernel("list", "links", refusal);
        let links = self.with_socket(rtnl::links).map_err(fail)?;
        let Some(link) = links.iter().find(|link| link.name == name) else { return Ok(()) };
        if link.kind == "bridge" && !links.iter().any(|port| port.master == link.index) {
            return self.delete(name);
        }
        tracing::warn!(link = name, "a link with the name of a network's bridge is used by others; it stays");
        self.forget(name);
        Ok(())
    }

    /// Returns a route whose packets the network would take, and its link; `None` without such a conflict.
    pub(crate) fn conflicting_route(&self, options: &BridgeOptions) -> Result<Option<(Subnet, String)>, Error> {
        let fail = |refusal| Error::kernel("list", "routes", refusal);
        let (routes, links) = self
            .with_socket(|socket| Ok::<_, Refusal>((rtnl::subnets_of_routes(socket)?, rtnl::links(socket)?)))
            .map_err(fail)?;
        let clash = routes.into_iter().find_map(|(route, index)| {
            let link = links.iter().find(|link| link.index == index).filter(|link| link.name != options.bridge)?;
            let overlaps =
                options.ranges().any(|range| range.subnet.overlaps(route) && route.prefix >= range.subnet.prefix);
            overlaps.then(|| (route, link.name.clone()))
        });
        Ok(clash)
    }
}

/// A pod that is to be connected.
pub(crate) struct Pod<'a> {
    pub(crate) sandbox: &'a str,
    pub(crate) interface: &'a str,
    /// Whether this is the first network of the pod.
    pub(crate) is_primary: bool,
    pub(crate) namespace: &'a netns::Namespace,
    pub(crate) addresses: &'a [(Subnet, IpAddr)],
    /// Requested MAC address.
    pub(crate) mac: Option<[u8; 6]>,
}

fn bridge_mac(options: &BridgeOptions) -> [u8; 6] {
    options.ranges().next().map_or([0x0a, 0x58, 0, 0, 0, 1], |range| mac(range.gateway))
}

fn make(socket: &mut Socket, options: &BridgeOptions) -> Result<u32, Error> {
    let name = &options.bridge;
    let fail = |refusal: Refusal| Error::kernel("create bridge", name, refusal);
    let mut batch = Batch::new();
    rtnl::add_bridge(&mut batch, &BridgeLink { name, mac: bridge_mac(options), mtu: options.mtu });
    match socket.request(batch) {
        Ok(()) => {}
        Err(refusal) if refusal.errno == Errno::EXIST => {}
        Err(refusal) => return Err(fail(refusal)),
    }
    let link = rtnl::link_by_name(socket, name).map_err(fail)?;
    match link {
        Some(link) if link.kind == "bridge" => Ok(link.index),
        Some(link) => Err(Error::config(
            name,
            format!("a link of this name exists and is a {:?}, not a bridge; choose another name", link.kind),
        )),
        None => Err(fail(Errno::NODEV.into())),
    }
}

fn address(socket: &mut Socket, options: &BridgeOptions, index: u32) -> Result<(), Error> {
    let mut batch = Batch::new();
    if options.gateway {
        for range in options.ranges() {
            rtnl::add_address(&mut batch, index, range.subnet.with(range.gateway));
        }
    }
    rtnl::set_up(&mut batch, &options.bridge);
    let refusals = socket.request_each(batch).map_err(|e| Error::kernel("set up bridge", &options.bridge, e))?;
    match refusals.into_iter().find(|refusal| refusal.errno != Errno::EXIST) {
        Some(refusal) => Err(Error::kernel("set up bridge", &options.bridge, refusal)),
        None => Ok(()),
    }
}

/// Configuration to apply in the pod's namespace.
struct PodSetup {
    interface: String,
    ipv6: bool,
    addresses: Vec<(Subnet, IpAddr)>,
    routes: Vec<Route>,
}

impl PodSetup {
    fn set_up(self) -> Result<(), Error> {
        let fail = |refusal: Refusal| Error::kernel("set up", format!("{} in the pod", self.interface), refusal);
        let mut socket = Socket::route().map_err(|e| Error::kernel("open", "rtnetlink socket in the pod", e))?;
        let link = rtnl::link_by_name(&mut socket, &self.interface).map_err(fail)?;
        let link = link.ok_or_else(|| fail(Errno::NODEV.into()))?;
        let mut batch = Batch::new();
        if !self.ipv6 {
            rtnl::disable_ipv6_address_generation(&mut batch, &self.interface);
        }
        rtnl::set_up(&mut batch, &self.interface);
        for (address, _) in &self.addresses {
            rtnl::add_address(&mut batch, link.index, *address);
        }
        for route in &self.routes {
            let via = self.addresses.iter().find(|(a, _)| a.address.is_ipv4() == route.dst.address.is_ipv4());
            rtnl::add_route(&mut batch, link.index, route.dst, route.gw.or(via.map(|(_, gateway)| *gateway)));
        }
        socket.request(batch).map_err(fail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_links_fit_and_differ() {
        let id = "0123456789abcdef";
        assert_eq!(host_link(id), "pin0123456789a");
        for sandbox in [id, "x", "Zz", "a-pod-with-a-name"] {
            assert!(is_host_link(&host_link(sandbox)), "{sandbox}");
            assert!(host_link(sandbox).len() <= rtnl::NAME_MAX);
        }
        assert_ne!(host_link("x"), host_link("y"));
        assert_ne!(host_link(id), host_link(&format!("{id}@net1")));
        for other in ["pinion0", "eth0", "pin0123456789", "pin0123456789ag", "pin0123456789A"] {
            assert!(!is_host_link(other), "{other}");
        }
    }
}
