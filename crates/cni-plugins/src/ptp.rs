//! `ptp`: a veth pair whose node's end has the gateway's address, so that the node routes between pods.

use std::net::IpAddr;

use rtnl::{
    AddRoute, Kind, Link, NewLink, Route,
    netlink::{Batch, Socket},
    subnet::{Subnet, bits},
};
use rustix::{fd::AsFd, io::Errno};
use serde::Deserialize;

use crate::{
    Error, Interface, PluginResult, Request, address_management, check, link, masquerade, pod, pod::Setup, sysctl,
};

/// How many random names are tried for the node's end.
const NAMES_MAX: usize = 10;

#[derive(Deserialize)]
struct Options {
    #[serde(default, rename = "ipMasq")]
    masquerades: bool,
    #[serde(default)]
    mtu: u32,
}

/// A veth pair that is to be created.
pub(crate) struct VethPair {
    pub(crate) mtu: u32,
    pub(crate) mac: Option<[u8; 6]>,
    pub(crate) master: Option<u32>,
}

impl VethPair {
    /// Creates the pair in one message: the node's end is up, the pod's down. Returns the node's end.
    pub(crate) fn create(&self, request: &Request, socket: &mut Socket) -> Result<Link, Error> {
        let namespace = request.namespace()?;
        for _ in 0..NAMES_MAX {
            let name = random_name()?;
            let kind = Kind::Veth {
                peer: &request.interface,
                peer_mac: self.mac,
                peer_namespace: Some(namespace.as_fd()),
                peer_up: false,
            };
            let mtu = (self.mtu > 0).then_some(self.mtu);
            let new =
                NewLink { mtu, master: self.master, transmit_queue: Some(0), up: true, ..NewLink::new(&name, kind) };
            let mut batch = Batch::new();
            new.add(&mut batch);
            match socket.request(batch) {
                Err(refusal) if refusal.errno == Errno::EXIST && exists(socket, &name)? => continue,
                outcome => outcome.map_err(|e| {
                    Error::of_module("create veth pair", format!("{name}, {}", request.interface), "veth", e)
                })?,
            }
            // The node's routes for this link are ours.
            sysctl::write_if_present(&format!("ipv6/conf/{name}/accept_ra"), "0")?;
            let found = rtnl::link_by_name(socket, &name).map_err(|e| Error::kernel("find", &name, e))?;
            return found.ok_or_else(|| Error::kernel("find", name, Errno::NODEV));
        }
        Err(Error::kernel("create veth pair", &request.interface, Errno::EXIST))
    }
}

fn exists(socket: &mut Socket, name: &str) -> Result<bool, Error> {
    Ok(rtnl::link_by_name(socket, name).map_err(|e| Error::kernel("find", name, e))?.is_some())
}

fn random_name() -> Result<String, Error> {
    let mut bytes = [0u8; 4];
    rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty())
        .map_err(|e| Error::kernel("get", "random bytes", e))?;
    Ok(format!("veth{:08x}", u32::from_ne_bytes(bytes)))
}

/// Returns an address with the length of its family as its prefix.
pub(crate) fn single(address: IpAddr) -> Subnet {
    Subnet { address, prefix: bits(address) }
}

pub(crate) fn add(request: &Request) -> Result<PluginResult, Error> {
    let options: Options = request.options()?;
    let pair = RoutedPair { mtu: options.mtu, mac: None, masquerades: options.masquerades, detects_duplicates: true };
    pair.add(request)
}

/// A veth pair between whose ends the node routes.
pub(crate) struct RoutedPair {
    /// Zero for the kernel's default.
    pub(crate) mtu: u32,
    /// MAC address of the pod's end.
    pub(crate) mac: Option<[u8; 6]>,
    /// Whether packets that leave the pod's subnet get the address of the node.
    pub(crate) masquerades: bool,
    /// Whether IPv6 addresses are tentative until the kernel has looked for duplicates, which takes one to two seconds.
    pub(crate) detects_duplicates: bool,
}

impl RoutedPair {
    /// Attaches the pod, with addresses from the address management of the request, which must be configured.
    pub(crate) fn add(&self, request: &Request) -> Result<PluginResult, Error> {
        if !address_management::is_configured(request) {
            return Err(Error::config("ipam", "missing"));
        }
        address_management::around(request, |managed| {
            let mut result = managed.unwrap_or_default();
            let gateways = gateways(&result)?;
            let addresses: Vec<Subnet> = result.ips.iter().map(|ip| ip.address).collect();
            sysctl::forward(&addresses)?;
            for ip in &mut result.ips {
                ip.interface = Some(1);
            }
            let mut socket = Request::node_socket()?;
            let pair = VethPair { mtu: self.mtu, mac: self.mac, master: None };
            let node_end = pair.create(request, &mut socket)?;
            if !self.detects_duplicates {
                // The node cannot look for neighbours on the link while the link-local address is tentative.
                sysctl::write_if_present(&format!("ipv6/conf/{}/accept_dad", node_end.name), "0")
                    .inspect_err(|_| link::undo(request))?;
            }
            let configured = self.configure(request, &mut socket, &node_end, &result, &gateways).and_then(|pod_end| {
                if self.masquerades {
                    masquerade::add(request, &addresses)?;
                }
                Ok(pod_end)
            });
            let pod_end = configured.inspect_err(|_| link::undo(request))?;
            let node = Interface { name: node_end.name.clone(), mac: node_end.mac_text(), ..Interface::default() };
            result.interfaces = vec![node, link::pod_interface(request, &pod_end)];
            let dns = request.dns()?;
            if !dns.is_empty() {
                result.dns = dns;
            }
            Ok(result)
        })
    }

    /// Configures both ends: the pod reaches everything but the gateway through the gateway.
    fn configure(
        &self,
        request: &Request,
        socket: &mut Socket,
        node_end: &Link,
        result: &PluginResult,
        gateways: &[(Subnet, IpAddr)],
    ) -> Result<Link, Error> {
        let (mut setup, name, pairs) = (Setup::of(result, 1), request.interface.clone(), gateways.to_vec());
        if !self.detects_duplicates {
            setup.sysctls.push((format!("ipv6/conf/{name}/accept_dad"), "0"));
        }
        let pod_end = pod::visit(request.namespace()?, move |socket| {
            let link = setup.apply_here(socket, &name)?;
            let mut batch = Batch::new();
            for (address, gateway) in pairs {
                let subnet = address.masked();
                Route::any(subnet, link.index).delete(&mut batch);
                let source = Some(address.address);
                let to_gateway =
                    Route { source, scope: rtnl::SCOPE_LINK, ..Route::new(single(gateway), None, link.index) };
                // The pod may be attached to the network twice.
                to_gateway.add(&mut batch, AddRoute::Append);
                Route { source, ..Route::new(subnet, Some(gateway), link.index) }.add(&mut batch, AddRoute::Append);
            }
            socket.request(batch).map_err(|e| Error::kernel("replace routes of", format!("{name} in the pod"), e))?;
            Ok(link)
        })?;
        let mut batch = Batch::new();
        for (address, gateway) in gateways {
            if self.detects_duplicates {
                rtnl::add_tentative_address(&mut batch, node_end.index, single(*gateway));
            } else {
                rtnl::add_address(&mut batch, node_end.index, single(*gateway));
            }
            let route = Route { scope: rtnl::SCOPE_HOST, ..Route::new(single(address.address), None, node_end.index) };
            // The link of a pod that had the address before may still exist, with its namespace.
            route.add(&mut batch, AddRoute::Replace);
        }
        let fail = |refusal| Error::kernel("set up", &node_end.name, refusal);
        let refusals = socket.request_each(batch).map_err(fail)?;
        match refusals.into_iter().find(|refusal| refusal.errno != Errno::EXIST) {
            Some(refusal) => Err(fail(refusal)),
            None => Ok(pod_end),
        }
    }
}

fn gateways(result: &PluginResult) -> Result<Vec<(Subnet, IpAddr)>, Error> {
    let pair = |ip: &crate::Ip| {
        let missing = || Error::config("ipam", format!("{} has no gateway, which the node's end needs", ip.address));
        Ok((ip.address, ip.gateway.ok_or_else(missing)?))
    };
    result.ips.iter().map(pair).collect()
}

pub(crate) fn delete(request: &Request) -> Result<(), Error> {
    let options: Options = request.options()?;
    pod::delete_link(request)?;
    if options.masquerades {
        masquerade::delete(request)?;
    }
    // Last: another pod may get the addresses at once.
    address_management::delete(request)
}

pub(crate) fn check(request: &Request) -> Result<(), Error> {
    address_management::check(request)?;
    check::attachment(request, "veth").map(drop)
}

/// Releases addresses and masquerading of attachments that are not valid.
pub(crate) fn collect(request: &Request) -> Result<(), Error> {
    address_management::collect(request)?;
    masquerade::collect(request)
}
