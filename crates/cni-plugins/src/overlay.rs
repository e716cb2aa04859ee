//! `overlay`: a veth pair whose node's end routes, in the node's subnet of a network that several nodes have, connected by
//! VXLAN or WireGuard. What connects the nodes is in the crate `overlay`.

use ::overlay::{Settings, Source};
use netns::Namespace;
use rtnl::{
    netlink::Socket,
    subnet::{Subnet, bits},
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::{
    Error, PluginResult, Request, address_management, arguments, check as pod_check, pod, ptp::RoutedPair, sysctl,
};

/// Members of a configuration, besides those of the specification, whose names have a dot or a slash, and those that it has
/// for every plugin.
const MEMBERS: [&str; 23] = [
    "vni",
    "port",
    "network",
    "node",
    "nodes",
    "etcd",
    "stateDir",
    "ipMasq",
    "mtu",
    "encrypted",
    "isDefaultGateway",
    "ipam",
    "dns",
    "args",
    "capabilities",
    "runtimeConfig",
    "name",
    "type",
    "cniVersion",
    "cniVersions",
    "prevResult",
    "disableCheck",
    "disableGC",
];

#[derive(Deserialize)]
struct Options {
    #[serde(default = "enabled", rename = "isDefaultGateway")]
    is_default_gateway: bool,
}

fn enabled() -> bool {
    true
}

fn parse(request: &Request) -> Result<(Settings, Options), Error> {
    // A wrong name of "encrypted" would have no effect, and nobody would notice.
    let is_known = |member: &&String| MEMBERS.contains(&member.as_str()) || member.contains(['.', '/']);
    if let Some(member) = request.config.keys().find(|member| !is_known(member)) {
        return Err(Error::config(member, format!("is unknown; members of an overlay are {}", MEMBERS.join(", "))));
    }
    Ok((Settings::parse(&request.config)?, request.options()?))
}

pub(crate) fn add(request: &Request) -> Result<PluginResult, Error> {
    let (settings, options) = parse(request)?;
    let node = configure(&settings)?;
    let mac = arguments::requested_mac(request)?;
    let pair = RoutedPair { mtu: node.mtu, mac, masquerades: false, detects_duplicates: false };
    pair.add(&request.with_addresses(&settings, &node.subnets, options.is_default_gateway)?)
}

/// What a pod needs to know of the node's part of the overlay.
struct Node {
    subnets: Vec<Subnet>,
    mtu: u32,
}

/// Connects the node to the others.
fn configure(settings: &Settings) -> Result<Node, Error> {
    let _lock = ::overlay::lock(&settings.state_directory, &settings.name)?;
    let mut socket = Request::node_socket()?;
    let (overlay, peers) = settings.resolve(&mut socket)?;
    sysctl::forward(overlay.subnets())?;
    // The daemon keeps the entries of peers current; a pod needs the endpoint only.
    let mtu = match settings.source {
        Source::Etcd(_) => ::overlay::endpoint_mtu(&mut socket, &overlay)?,
        Source::Nodes(_) => None,
    };
    let mtu = match mtu {
        Some(mtu) => mtu,
        None => ::overlay::converge(&mut socket, &overlay, &peers)?.mtu,
    };
    Ok(Node { subnets: overlay.subnets().to_vec(), mtu })
}

/// Returns the section for `host-local`: the subnets of this node, and the routes that a pod needs: to the whole network, in
/// case its default route leads elsewhere, and default routes.
fn addresses(
    section: Option<&Value>,
    settings: &Settings,
    subnets: &[Subnet],
    is_default_gateway: bool,
) -> Result<Value, Error> {
    let mut section = match section {
        None => Map::new(),
        Some(Value::Object(section)) => section.clone(),
        Some(_) => return Err(Error::config("ipam", "is not an object")),
    };
    let kind = section.get("type").and_then(Value::as_str).unwrap_or("host-local");
    if kind != "host-local" || ["subnet", "ranges"].iter().any(|key| section.contains_key(*key)) {
        let reason = "must be without subnet and ranges, and of the type host-local: the overlay has the subnet";
        return Err(Error::config("ipam", reason));
    }
    let ranges: Vec<Value> = subnets.iter().map(|subnet| json!([{ "subnet": subnet }])).collect();
    let mut routes = match section.remove("routes") {
        None => Vec::new(),
        Some(Value::Array(routes)) => routes,
        Some(_) => return Err(Error::config("ipam.routes", "is not a list")),
    };
    routes.extend(settings.networks.iter().map(|network| json!({ "dst": network })));
    for subnet in subnets.iter().filter(|_| is_default_gateway) {
        let everything = if subnet.address.is_ipv4() { "0.0.0.0/0" } else { "::/0" };
        if !routes.iter().any(|route| route.get("dst").and_then(Value::as_str) == Some(everything)) {
            routes.push(json!({"dst": everything, "gw": subnet.first_usable()}));
        }
    }
    section.insert("type".into(), "host-local".into());
    section.insert("ranges".into(), ranges.into());
    section.insert("routes".into(), routes.into());
    Ok(Value::Object(section))
}

/// Returns the request for the addresses of a pod that was attached earlier: the subnets may have changed, or be unknown.
fn later(request: &Request, settings: &Settings) -> Result<Request, Error> {
    let previous = request.previous.iter().flat_map(|previous| &previous.ips).map(|ip| ip.address.masked());
    let mut subnets: Vec<Subnet> = previous.collect();
    if subnets.is_empty() {
        subnets.clone_from(&settings.networks);
    }
    request.with_addresses(settings, &subnets, false)
}

pub(crate) fn delete(request: &Request) -> Result<(), Error> {
    let settings = Settings::parse(&request.config)?;
    pod::delete_link(request)?;
    // Last: another pod may get the addresses at once.
    address_management::delete(&later(request, &settings)?)
}

pub(crate) fn collect(request: &Request) -> Result<(), Error> {
    address_management::collect(&later(request, &Settings::parse(&request.config)?)?)
}

/// Compares the pod with the result, and the connections to pods and other nodes with those that are needed.
pub(crate) fn check(request: &Request) -> Result<(), Error> {
    let (settings, _) = parse(request)?;
    address_management::check(&later(request, &settings)?)?;
    let pod_end = pod_check::attachment(request, "veth")?;
    let _lock = ::overlay::lock(&settings.state_directory, &settings.name)?;
    let mut socket = Request::node_socket()?;
    check_routes(request, &mut socket, pod_end.parent)?;
    let (overlay, peers) = settings.resolve(&mut socket)?;
    match ::overlay::differences(&mut socket, &overlay, &peers)? {
        0 => Ok(()),
        count => Err(Error::differs(::overlay::endpoint_name(settings.id), format!("{count} entries differ"))),
    }
}

/// Checks that the node has a route to each address of the pod, through its end of the veth pair.
fn check_routes(request: &Request, socket: &mut Socket, node_end: u32) -> Result<(), Error> {
    let all = rtnl::routes(socket).map_err(|e| Error::kernel("list", "routes of the node", e))?;
    for ip in request.required_previous()?.ips {
        let address = ip.address.address;
        let leads_there = |route: &rtnl::Route| {
            route.to.address == address && route.to.prefix == bits(address) && route.link == node_end
        };
        if !all.iter().any(leads_there) {
            return Err(Error::differs("routes", format!("the node's route to {address} does not exist")));
        }
    }
    Ok(())
}

/// Reports whether the node has a subnet, and whether the kernel can connect it.
pub(crate) fn status(request: &Request) -> Result<(), Error> {
    configure(&parse(request)?.0).map(drop)
}

impl Request {
    /// Returns this request with addresses of subnets of the overlay.
    fn with_addresses(&self, settings: &Settings, subnets: &[Subnet], is_default_gateway: bool) -> Result<Self, Error> {
        let mut config = self.config.clone();
        let section = addresses(config.get("ipam"), settings, subnets, is_default_gateway)?;
        config.insert("ipam".into(), section);
        self.with_config(config)
    }

    /// Returns this request with another configuration.
    pub(crate) fn with_config(&self, config: Map<String, Value>) -> Result<Self, Error> {
        Ok(Self {
            container: self.container.clone(),
            interface: self.interface.clone(),
            namespace: self.namespace.as_ref().map(Namespace::try_clone).transpose()?,
            namespace_path: self.namespace_path.clone(),
            directories: self.directories.clone(),
            is_new: self.is_new,
            nft: self.nft.clone(),
            announcer: self.announcer.clone(),
            arguments: self.arguments.clone(),
            config,
            version: self.version.clone(),
            network: self.network.clone(),
            previous: self.previous.clone(),
        })
    }
}
