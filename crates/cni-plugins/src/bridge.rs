//! `bridge`: a veth pair whose node's end is a port of a bridge.

mod gateway;
mod options;
mod port;
mod spoof_check;

use std::{thread, time::Duration};

use options::Options;
use rtnl::{
    Change, Kind, Link, NewLink,
    flags::{PROMISCUOUS, UP},
    netlink::{Batch, Socket},
    subnet::Subnet,
};
use rustix::io::Errno;

use crate::{
    Error, Interface, PluginResult, Request, address_management, announcer, check, link, masquerade, pod, pod::Setup,
    ptp::VethPair, sysctl,
};

/// State of a link that forwards (`IF_OPER_UP`).
const STATE_UP: u8 = 6;
/// Times between looks at the state of the port, in milliseconds.
const STATE_PAUSES: [u64; 8] = [1, 2, 5, 20, 50, 400, 1000, 1000];

pub(crate) fn add(request: &Request) -> Result<PluginResult, Error> {
    let options = Options::parse(request)?;
    address_management::around(request, |managed| {
        let mut socket = Request::node_socket()?;
        let bridge = ensure_bridge(&mut socket, &options)?;
        let pair = VethPair { mtu: options.mtu, mac: options.mac, master: Some(bridge.index) };
        let node_end = pair.create(request, &mut socket)?;
        let made = attach(request, &options, &mut socket, &bridge, &node_end, managed);
        made.inspect_err(|_| {
            link::undo(request);
            // The first error is the one to return.
            let _ = spoof_check::delete(request);
        })
    })
}

fn attach(
    request: &Request,
    options: &Options,
    socket: &mut Socket,
    bridge: &Link,
    node_end: &Link,
    managed: Option<PluginResult>,
) -> Result<PluginResult, Error> {
    port::configure(socket, node_end, options)?;
    let is_layer3 = managed.is_some();
    let mut result = managed.unwrap_or_default();
    gateway::complete(&mut result, options);
    let setup = Setup { is_down: options.leaves_pod_down, ..setup(request, options, &result) };
    if options.checks_mac {
        let mac = pod_mac(request)?;
        spoof_check::add(request, &node_end.name, &mac)?;
    }
    let pod_end = setup.apply(request)?;
    let mut extra = None;
    if is_layer3 && options.is_gateway {
        extra = gateway::serve(socket, bridge, options, &result)?;
    }
    if is_layer3 && options.masquerades {
        let addresses: Vec<Subnet> = result.ips.iter().map(|ip| ip.address).collect();
        masquerade::add(request, &addresses)?;
    }
    let node_end =
        if options.leaves_pod_down { by_name(socket, &node_end.name)? } else { wait_for_port(socket, &node_end.name)? };
    announcer::announce(request, &pod_end, &result, 2);
    let of_node = |link: &Link| Interface { name: link.name.clone(), mac: link.mac_text(), ..Interface::default() };
    let bridge = by_name(socket, &bridge.name)?;
    result.interfaces = vec![of_node(&bridge), of_node(&node_end), link::pod_interface(request, &pod_end)];
    result.interfaces.extend(extra.as_ref().map(of_node));
    let dns = request.dns()?;
    if !dns.is_empty() {
        result.dns = dns;
    }
    Ok(result)
}

fn setup(request: &Request, options: &Options, result: &PluginResult) -> Setup {
    let mut setup = Setup::of(result, 2);
    if !result.ips.is_empty() {
        let name = &request.interface;
        if options.detects_duplicates {
            setup.sysctls.push((format!("ipv6/conf/{name}/enhanced_dad"), "1"));
            setup.sysctls.push((format!("ipv6/conf/{name}/accept_dad"), "1"));
        } else {
            setup.sysctls.push((format!("ipv6/conf/{name}/accept_dad"), "0"));
        }
        setup.announce_ipv4(request);
    }
    setup
}

fn pod_mac(request: &Request) -> Result<Vec<u8>, Error> {
    let name = request.interface.clone();
    pod::visit(request.namespace()?, move |socket| pod::link(socket, &name)).map(|link| link.mac)
}

fn by_name(socket: &mut Socket, name: &str) -> Result<Link, Error> {
    let found = rtnl::link_by_name(socket, name).map_err(|e| Error::kernel("find", name, e))?;
    found.ok_or_else(|| Error::kernel("find", name, Errno::NODEV))
}

/// Creates the bridge unless it exists, and sets it up. Returns it as it is before it gets another port.
fn ensure_bridge(socket: &mut Socket, options: &Options) -> Result<Link, Error> {
    let name = &options.bridge;
    let fail = |refusal| Error::of_module("create bridge", name, "bridge", refusal);
    let mut found = rtnl::link_by_name(socket, name).map_err(fail)?;
    if found.is_none() {
        let kind = Kind::Bridge { vlan_filtering: options.filters_vlans() };
        let mtu = (options.mtu > 0).then_some(options.mtu);
        let mut batch = Batch::new();
        NewLink { mtu, up: true, ..NewLink::new(name, kind) }.add(&mut batch);
        match socket.request(batch) {
            // Another request was faster.
            Err(refusal) if refusal.errno != Errno::EXIST => return Err(fail(refusal)),
            _ => {}
        }
        found = rtnl::link_by_name(socket, name).map_err(fail)?;
    }
    let bridge = found.ok_or_else(|| fail(Errno::NODEV.into()))?;
    if bridge.kind != "bridge" {
        let reason = format!("{name} exists and is of kind {:?}, not a bridge", bridge.kind);
        return Err(Error::config("bridge", reason));
    }
    // The node's routes for this link are ours.
    sysctl::ensure_if_present(&format!("ipv6/conf/{name}/accept_ra"), "0")?;
    let wanted = if options.is_promiscuous { UP | PROMISCUOUS } else { UP };
    if bridge.flags & wanted != wanted {
        let mut batch = Batch::new();
        Change::flag(wanted, true).of(&mut batch, bridge.index);
        socket.request(batch).map_err(|e| Error::kernel("set up bridge", name, e))?;
    }
    Ok(bridge)
}

/// Waits until the bridge forwards through the port, and returns the node's end.
fn wait_for_port(socket: &mut Socket, name: &str) -> Result<Link, Error> {
    for pause in STATE_PAUSES {
        let link = by_name(socket, name)?;
        if link.state == STATE_UP {
            return Ok(link);
        }
        thread::sleep(Duration::from_millis(pause));
    }
    let link = by_name(socket, name)?;
    if link.state == STATE_UP {
        return Ok(link);
    }
    let cause = std::io::Error::other(format!("its state is {}, not up", link.state));
    Err(Error::kernel("wait for bridge port", name, cause))
}

pub(crate) fn delete(request: &Request) -> Result<(), Error> {
    let options = Options::parse(request)?;
    pod::delete_link(request)?;
    if options.checks_mac {
        spoof_check::delete(request)?;
    }
    if options.masquerades {
        masquerade::delete(request)?;
    }
    // Last: another pod may get the addresses at once.
    address_management::delete(request)
}

pub(crate) fn check(request: &Request) -> Result<(), Error> {
    let options = Options::parse(request)?;
    address_management::check(request)?;
    let previous = request.required_previous()?;
    let mut socket = Request::node_socket()?;
    let differs = |reason: String| Error::differs(&options.bridge, reason);
    let bridge =
        rtnl::link_by_name(&mut socket, &options.bridge).map_err(|e| Error::kernel("find", &options.bridge, e))?;
    let bridge = bridge.filter(|link| link.kind == "bridge").ok_or_else(|| differs("is not a bridge".into()))?;
    let noted = previous.interfaces.iter().find(|i| i.name == options.bridge && i.sandbox.is_empty());
    let noted = noted.ok_or_else(|| differs("is not in the previous result".into()))?;
    if !noted.mac.is_empty() && noted.mac != bridge.mac_text() {
        return Err(differs(format!("MAC address is {}, not {}", bridge.mac_text(), noted.mac)));
    }
    if (bridge.promiscuity > 0) != options.is_promiscuous {
        return Err(differs(format!("promiscuous mode is not {}", options.is_promiscuous)));
    }
    let pod_end = check::attachment(request, "veth")?;
    let node_end =
        rtnl::link_by_index(&mut socket, pod_end.parent).map_err(|e| Error::kernel("find", "veth peer", e))?;
    match node_end {
        Some(node_end) if node_end.master == bridge.index => Ok(()),
        _ => Err(differs(format!("{} is not connected to it", request.interface))),
    }
}

/// Releases addresses and masquerading of attachments that are not valid.
pub(crate) fn collect(request: &Request) -> Result<(), Error> {
    address_management::collect(request)?;
    masquerade::collect(request)
}
