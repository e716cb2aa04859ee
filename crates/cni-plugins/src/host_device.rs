//! `host-device`: moves a link of the node to the pod, and back.

mod find;
mod network;

use std::path::Path;

use netns::Namespace;
use rtnl::{Change, Link, flags::UP, netlink::Batch};
use rustix::{fd::AsFd, io::Errno};
use serde::Deserialize;

use crate::{Error, Interface, PluginResult, Request, address_management, check, link, pod, pod::Setup};
use find::Device;
use network::NodeNetwork;

#[derive(Deserialize)]
struct Options {
    #[serde(default)]
    device: String,
    #[serde(default, rename = "hwaddr")]
    mac: String,
    #[serde(default, rename = "kernelpath")]
    kernel_path: String,
    #[serde(default, rename = "pciBusID")]
    pci_address: String,
    #[serde(default, rename = "runtimeConfig")]
    runtime: Runtime,
    #[serde(default, rename = "useInterfaceNetwork")]
    keeps_network: bool,
}

#[derive(Default, Deserialize)]
struct Runtime {
    #[serde(default, rename = "deviceID")]
    device: String,
}

fn parse(request: &Request) -> Result<(Options, Device), Error> {
    let options: Options = request.options()?;
    let device = Device::parse(&options)?;
    if device.is_of_user_space() && options.keeps_network {
        return Err(Error::config("useInterfaceNetwork", "not possible for a device of a user-space driver"));
    }
    Ok((options, device))
}

pub(crate) fn add(request: &Request) -> Result<PluginResult, Error> {
    let (options, device) = parse(request)?;
    address_management::around(request, |managed| {
        let mut result = managed.unwrap_or_default();
        for ip in &mut result.ips {
            ip.interface = Some(0);
        }
        if device.is_of_user_space() {
            let sandbox = request.namespace_path.clone();
            result.interfaces = vec![Interface { name: request.interface.clone(), sandbox, ..Interface::default() }];
            return Ok(result);
        }
        let mut socket = Request::node_socket()?;
        let node_link = device.find(&mut socket)?;
        let kept = if options.keeps_network { Some(NodeNetwork::of(&mut socket, &node_link)?) } else { None };
        move_in(request, &mut socket, &node_link)?;
        let pod_link = configure(request, &result, kept.as_ref()).inspect_err(|_| {
            // The first error is the one to return.
            let _ = move_out(request);
        })?;
        result.interfaces = vec![link::pod_interface(request, &pod_link)];
        if let Some(kept) = kept {
            kept.add_to(&mut result);
        }
        if address_management::is_configured(request) {
            result.dns = request.dns()?;
        }
        Ok(result)
    })
}

/// Moves the link in one message: the kernel renames it in the pod's namespace, where no program of the node watches.
/// Its alias is its name on the node.
fn move_in(request: &Request, socket: &mut rtnl::netlink::Socket, link: &Link) -> Result<(), Error> {
    let mut batch = Batch::new();
    let change = Change {
        name: Some(&request.interface),
        alias: Some(&link.name),
        namespace: Some(request.namespace()?.as_fd()),
        ..Change::default()
    };
    change.of(&mut batch, link.index);
    socket.request(batch).map_err(|e| Error::kernel("move to the pod", &link.name, e))
}

fn configure(request: &Request, result: &PluginResult, kept: Option<&NodeNetwork>) -> Result<Link, Error> {
    let (name, setup, kept) = (request.interface.clone(), Setup::of(result, 0), kept.cloned());
    pod::visit(request.namespace()?, move |socket| {
        let link = pod::link(socket, &name)?;
        let mut batch = Batch::new();
        Change::flag(UP, true).of(&mut batch, link.index);
        socket.request(batch).map_err(|e| Error::kernel("set up", format!("{name} in the pod"), e))?;
        if let Some(kept) = kept {
            kept.apply(socket, &link)?;
        }
        setup.apply_here(socket, &name)
    })
}

/// Moves the link back, with its name on the node, and down. Before that it is renamed in the pod's namespace. Succeeds
/// without the link: it is back already, or the pod has deleted it.
fn move_out(request: &Request) -> Result<(), Error> {
    let Some(namespace) = &request.namespace else { return Ok(()) };
    let node = Namespace::open(Path::new("/proc/thread-self/ns/net"))?;
    let name = request.interface.clone();
    pod::visit(namespace, move |socket| {
        let fail = |refusal| Error::kernel("move to the node", &name, refusal);
        let Some(link) = rtnl::link_by_name(socket, &name).map_err(fail)? else { return Ok(()) };
        if link.alias.is_empty() {
            let cause = std::io::Error::other("it has no alias, which is its name on the node");
            return Err(Error::kernel("move to the node", &name, cause));
        }
        let original = Some(link.alias.as_str());
        let mut batch = Batch::new();
        Change::flag(UP, false).of(&mut batch, link.index);
        Change { name: original, alias: Some(""), ..Change::default() }.of(&mut batch, link.index);
        Change { name: original, namespace: Some(node.as_fd()), ..Change::default() }.of(&mut batch, link.index);
        let refusals = socket.request_each(batch).map_err(fail)?;
        // Another link of the pod may have the name; then the kernel renames this one on the node.
        let refusal = refusals.into_iter().find(|refusal| refusal.index != 1 || refusal.errno != Errno::EXIST);
        refusal.map_or(Ok(()), |refusal| Err(fail(refusal)))
    })
}

pub(crate) fn delete(request: &Request) -> Result<(), Error> {
    let (_, device) = parse(request)?;
    address_management::delete(request)?;
    if device.is_of_user_space() { Ok(()) } else { move_out(request) }
}

pub(crate) fn check(request: &Request) -> Result<(), Error> {
    let (_, device) = parse(request)?;
    address_management::check(request)?;
    if device.is_of_user_space() {
        return request.required_previous().map(drop);
    }
    check::attachment(request, "").map(drop)
}
