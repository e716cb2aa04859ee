//! `overlay`: a port of a bridge in the node's subnet of a network that several nodes have, connected by VXLAN. The bridge is
//! that of `bridge`; what connects the nodes is in the crate `overlay`.

use ::overlay::{Settings, Source};
use netns::Namespace;
use rtnl::subnet::Subnet;
use serde_json::{Map, Value, json};

use crate::{Error, PluginResult, Request, bridge, sysctl};

/// Members of the configuration that are those of the overlay, not of the bridge.
const MEMBERS: [&str; 9] = ["vni", "port", "network", "node", "nodes", "etcd", "stateDir", "ipMasq", "mtu"];

/// Returns the name of the bridge of an overlay, unless its configuration has another one.
#[must_use]
pub fn bridge_name(id: u32) -> String {
    format!("pinbr.{id}")
}

pub(crate) fn add(request: &Request) -> Result<PluginResult, Error> {
    let settings = Settings::parse(&request.config)?;
    let mtu = configure(&settings)?;
    bridge::add(&mtu.request(request, &settings)?)
}

/// What the bridge has to know of the overlay.
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

impl Node {
    /// Returns the request that the bridge gets.
    fn request(&self, request: &Request, settings: &Settings) -> Result<Request, Error> {
        let mut config = request.config.clone();
        config.retain(|key, _| !MEMBERS.contains(&key.as_str()));
        let defaults = json!({"bridge": bridge_name(settings.id), "isDefaultGateway": true, "hairpinMode": true});
        config.insert(bridge::KEEP_ADDRESSES.into(), true.into());
        for (key, value) in defaults.as_object().into_iter().flatten() {
            config.entry(key.clone()).or_insert_with(|| value.clone());
        }
        config.insert("type".into(), "bridge".into());
        config.insert("ipam".into(), self.addresses(request.config.get("ipam"), settings)?);
        if self.mtu > 0 {
            config.insert("mtu".into(), self.mtu.into());
        }
        request.with_config(config)
    }

    /// Returns the section for `host-local`: the subnets of this node, and routes to the whole network, which a pod needs
    /// if its default route leads elsewhere.
    fn addresses(&self, section: Option<&Value>, settings: &Settings) -> Result<Value, Error> {
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
        let ranges: Vec<Value> = self.subnets.iter().map(|subnet| json!([{ "subnet": subnet }])).collect();
        let mut routes = match section.remove("routes") {
            None => Vec::new(),
            Some(Value::Array(routes)) => routes,
            Some(_) => return Err(Error::config("ipam.routes", "is not a list")),
        };
        routes.extend(settings.networks.iter().map(|network| json!({ "dst": network })));
        section.insert("type".into(), "host-local".into());
        section.insert("ranges".into(), ranges.into());
        section.insert("routes".into(), routes.into());
        Ok(Value::Object(section))
    }
}

/// Returns the request for the bridge of a pod that was attached earlier: the subnets may have changed, or be unknown.
fn later(request: &Request, settings: &Settings) -> Result<Request, Error> {
    let previous = request.previous.iter().flat_map(|previous| &previous.ips).map(|ip| ip.address.masked());
    let mut subnets: Vec<Subnet> = previous.collect();
    if subnets.is_empty() {
        subnets.clone_from(&settings.networks);
    }
    Node { subnets, mtu: 0 }.request(request, settings)
}

pub(crate) fn delete(request: &Request) -> Result<(), Error> {
    let settings = Settings::parse(&request.config)?;
    bridge::delete(&later(request, &settings)?)
}

pub(crate) fn collect(request: &Request) -> Result<(), Error> {
    let settings = Settings::parse(&request.config)?;
    bridge::collect(&later(request, &settings)?)
}

/// Compares the pod with the result, and the connections to other nodes with those that are needed.
pub(crate) fn check(request: &Request) -> Result<(), Error> {
    let settings = Settings::parse(&request.config)?;
    bridge::check(&later(request, &settings)?)?;
    let _lock = ::overlay::lock(&settings.state_directory, &settings.name)?;
    let mut socket = Request::node_socket()?;
    let (overlay, peers) = settings.resolve(&mut socket)?;
    match ::overlay::differences(&mut socket, &overlay, &peers)? {
        0 => Ok(()),
        count => Err(Error::differs(::overlay::endpoint_name(settings.id), format!("{count} entries differ"))),
    }
}

/// Reports whether the node has a subnet, and whether the kernel can connect it.
pub(crate) fn status(request: &Request) -> Result<(), Error> {
    configure(&Settings::parse(&request.config)?).map(drop)
}

impl Request {
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
            arguments: self.arguments.clone(),
            config,
            version: self.version.clone(),
            network: self.network.clone(),
            previous: self.previous.clone(),
        })
    }
}
