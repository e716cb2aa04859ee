//! The configuration of a plugin of the type `overlay`.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    path::{Path, PathBuf},
};

use rtnl::{
    netlink::Socket,
    subnet::{Subnet, bits},
};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::{
    Definition, Error, Overlay, Peer, Peers, default_port, local_addresses, node_address,
    peers::PEERS_MAX,
    record::{LEASE_TTL, Record, boot_time},
};

/// Directory of records unless configured.
const STATE_DIRECTORY: &str = "/run/pinion/overlay";
/// Prefix of keys in etcd unless configured.
const ETCD_PREFIX: &str = "/pinion/overlay";
/// Most endpoints of etcd.
const ENDPOINTS_MAX: usize = 16;
/// Length that the prefix of a node's subnet has beyond that of the network, at most: the number of nodes is 2^16.
const NODE_BITS_MAX: u8 = 16;

/// Parsed configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Name of the network.
    pub name: String,
    /// VXLAN network identifier.
    pub id: u32,
    /// UDP port.
    pub port: u16,
    /// Address ranges of the whole network.
    pub networks: Vec<Subnet>,
    /// Address of this node; `None` to find it.
    pub node: Option<IpAddr>,
    /// MTU of pods; `None` for the largest.
    pub mtu: Option<u32>,
    /// Whether packets of pods that leave the network get the address of the node.
    pub masquerades: bool,
    /// Whether packets between nodes are encrypted.
    pub encrypted: bool,
    /// Directory of records and locks, on tmpfs.
    pub state_directory: PathBuf,
    /// Where subnets and other nodes come from.
    pub source: Source,
}

/// Where subnets and other nodes come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// From the configuration: all nodes with their subnets, the same on each node.
    Nodes(BTreeMap<IpAddr, Vec<Subnet>>),
    /// From etcd.
    Etcd(EtcdSettings),
}

/// How etcd is reached, and what is stored in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdSettings {
    /// Base addresses, such as `https://192.0.2.9:2379`.
    pub endpoints: Vec<String>,
    /// Prefix of keys, without a slash at its end.
    pub prefix: String,
    /// File with certificates of authorities, in PEM.
    pub ca_file: Option<PathBuf>,
    /// Files with a client certificate and its key, in PEM.
    pub client_files: Option<(PathBuf, PathBuf)>,
    /// User, and the file with the password.
    pub user: Option<(String, PathBuf)>,
    /// Length of the prefix of a node's subnet, for each range of the network.
    pub subnet_prefixes: Vec<u8>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany<T> {
    One(T),
    Many(Vec<T>),
}

impl<T> OneOrMany<T> {
    fn into_vec(self) -> Vec<T> {
        match self {
            Self::One(one) => vec![one],
            Self::Many(many) => many,
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Raw {
    #[serde(default)]
    name: String,
    vni: u32,
    port: Option<u16>,
    network: OneOrMany<Subnet>,
    node: Option<IpAddr>,
    #[serde(default)]
    mtu: u32,
    #[serde(default = "enabled", rename = "ipMasq")]
    masquerades: bool,
    #[serde(default)]
    encrypted: bool,
    state_dir: Option<PathBuf>,
    nodes: Option<BTreeMap<IpAddr, OneOrMany<Subnet>>>,
    etcd: Option<RawEtcd>,
}

fn enabled() -> bool {
    true
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawEtcd {
    endpoints: Vec<String>,
    prefix: Option<String>,
    ca_file: Option<PathBuf>,
    cert_file: Option<PathBuf>,
    key_file: Option<PathBuf>,
    username: Option<String>,
    password_file: Option<PathBuf>,
    subnet_length: Option<OneOrMany<u8>>,
}

impl Settings {
    /// Parses the configuration of a plugin. Other members are left to the plugin.
    ///
    /// # Errors
    /// [`Error::Config`].
    pub fn parse(config: &Map<String, Value>) -> Result<Self, Error> {
        let raw: Raw = serde_json::from_value(Value::Object(config.clone()))
            .map_err(|error| Error::config("configuration", error.to_string()))?;
        let networks = raw.network.into_vec();
        let source = match (raw.nodes, raw.etcd) {
            (Some(nodes), None) => Source::Nodes(nodes.into_iter().map(|(a, s)| (a, s.into_vec())).collect()),
            (None, Some(etcd)) => Source::Etcd(etcd.parse(&networks)?),
            _ => return Err(Error::config("configuration", "needs either \"nodes\" or \"etcd\"")),
        };
        if matches!(&source, Source::Nodes(nodes) if nodes.len() > PEERS_MAX) {
            return Err(Error::config("nodes", format!("has more than {PEERS_MAX} nodes")));
        }
        if raw.encrypted && matches!(source, Source::Nodes(_)) {
            return Err(Error::config("encrypted", "needs \"etcd\", where the nodes publish their keys"));
        }
        if raw.encrypted && !raw.masquerades {
            let reason = "needs \"ipMasq\": a node drops packets of pods of other nodes that are not encrypted";
            return Err(Error::config("encrypted", reason));
        }
        let state_directory = raw.state_dir.unwrap_or_else(|| STATE_DIRECTORY.into());
        if !state_directory.is_absolute() {
            return Err(Error::config("stateDir", format!("{} is not an absolute path", state_directory.display())));
        }
        Ok(Self {
            name: raw.name,
            id: raw.vni,
            port: raw.port.unwrap_or_else(|| default_port(raw.vni, raw.encrypted)),
            networks,
            node: raw.node,
            mtu: (raw.mtu > 0).then_some(raw.mtu),
            masquerades: raw.masquerades,
            encrypted: raw.encrypted,
            state_directory,
            source,
        })
    }

    /// Returns the overlay and its peers: those of the configuration, or those that the daemon recorded.
    ///
    /// # Errors
    /// [`Error::NotReady`] if the daemon has recorded no subnet yet; [`Error::Config`], [`Error::Kernel`].
    pub fn resolve(&self, socket: &mut Socket) -> Result<(Overlay, Peers), Error> {
        match &self.source {
            Source::Nodes(nodes) => self.resolve_static(socket, nodes),
            Source::Etcd(_) => {
                let record = Record::read(&self.state_directory, &self.name)?;
                let record = record.filter(|record| self.is_current(record));
                let record = record.ok_or_else(|| Error::NotReady { network: self.name.clone() })?;
                let overlay = Overlay::new(record.definition)?;
                let peers = Peers::select(&overlay, record.peers).0;
                Ok((overlay, peers))
            }
        }
    }

    /// Reports whether a record is one of these settings, and its subnets are still those of this node.
    fn is_current(&self, record: &Record) -> bool {
        let Definition { node, subnets, .. } = record.definition.clone();
        let age = boot_time().saturating_sub(record.renewed);
        record.definition == self.definition(node, subnets) && age < LEASE_TTL.as_secs()
    }

    fn resolve_static(
        &self,
        socket: &mut Socket,
        nodes: &BTreeMap<IpAddr, Vec<Subnet>>,
    ) -> Result<(Overlay, Peers), Error> {
        let node = match self.node {
            Some(node) => node,
            None => own_node(&local_addresses(socket)?, nodes)?,
        };
        let subnets = nodes.get(&node).cloned();
        let subnets = subnets.ok_or_else(|| Error::config("nodes", format!("has no subnet for this node, {node}")))?;
        let overlay = Overlay::new(self.definition(node, subnets))?;
        let peers = nodes.iter().map(|(node, subnets)| Peer { node: *node, subnets: subnets.clone(), key: None });
        let (peers, mut refused) = Peers::select(&overlay, peers);
        // What the administrator wrote is to be right as a whole, unlike what other nodes publish.
        refused.pop().map_or(Ok((overlay, peers)), Err)
    }

    /// Returns the definition of the overlay on a node.
    #[must_use]
    pub fn definition(&self, node: IpAddr, subnets: Vec<Subnet>) -> Definition {
        Definition {
            name: self.name.clone(),
            id: self.id,
            port: self.port,
            node,
            networks: self.networks.clone(),
            subnets,
            mtu: self.mtu,
            masquerades: self.masquerades,
            encrypted: self.encrypted,
        }
    }

    /// Returns the address of this node: the configured one, or that of the default route.
    ///
    /// # Errors
    /// [`Error::Config`] if there is neither; [`Error::Kernel`].
    pub fn node(&self, socket: &mut Socket) -> Result<IpAddr, Error> {
        self.node.map_or_else(|| node_address(socket), Ok)
    }
}

/// Returns the node that has an address of this node.
fn own_node(local: &[IpAddr], nodes: &BTreeMap<IpAddr, Vec<Subnet>>) -> Result<IpAddr, Error> {
    let own: Vec<&IpAddr> = nodes.keys().filter(|address| local.contains(address)).collect();
    match own[..] {
        [node] => Ok(*node),
        [] => Err(Error::config("nodes", "has no address of this node")),
        _ => Err(Error::config("nodes", format!("has several addresses of this node, {own:?}; set \"node\" to one"))),
    }
}

impl RawEtcd {
    fn parse(self, networks: &[Subnet]) -> Result<EtcdSettings, Error> {
        let invalid = |reason: String| Error::config("etcd", reason);
        if self.endpoints.is_empty() || self.endpoints.len() > ENDPOINTS_MAX {
            return Err(invalid(format!("has {} endpoints; give 1 to {ENDPOINTS_MAX}", self.endpoints.len())));
        }
        let is_url = |e: &String| e.starts_with("http://") || e.starts_with("https://");
        if let Some(endpoint) = self.endpoints.iter().find(|endpoint| !is_url(endpoint)) {
            return Err(invalid(format!("endpoint {endpoint:?} is not an address such as https://192.0.2.9:2379")));
        }
        let prefix = self.prefix.unwrap_or_else(|| ETCD_PREFIX.into());
        if !prefix.starts_with('/') || prefix.trim_end_matches('/').is_empty() {
            return Err(invalid(format!("prefix {prefix:?} is not a path such as {ETCD_PREFIX}")));
        }
        let client_files = match (self.cert_file, self.key_file) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            _ => return Err(invalid("certFile and keyFile belong together".into())),
        };
        let user = match (self.username, self.password_file) {
            (Some(name), Some(file)) => Some((name, file)),
            (None, None) => None,
            _ => return Err(invalid("username and passwordFile belong together".into())),
        };
        let files = [&self.ca_file].into_iter().flatten().chain(client_files.iter().flat_map(|(c, k)| [c, k]));
        if let Some(file) = files.chain(user.iter().map(|(_, file)| file)).find(|file| !Path::is_absolute(file)) {
            return Err(invalid(format!("{} is not an absolute path", file.display())));
        }
        let subnet_prefixes = subnet_prefixes(self.subnet_length.map(OneOrMany::into_vec), networks)?;
        let endpoints = self.endpoints.iter().map(|e| e.trim_end_matches('/').to_owned()).collect();
        let prefix = prefix.trim_end_matches('/').to_owned();
        Ok(EtcdSettings { endpoints, prefix, ca_file: self.ca_file, client_files, user, subnet_prefixes })
    }
}

/// Returns the lengths of nodes' prefixes: 24 and 64 unless configured.
fn subnet_prefixes(configured: Option<Vec<u8>>, networks: &[Subnet]) -> Result<Vec<u8>, Error> {
    let usual = || networks.iter().map(|network| if network.address.is_ipv4() { 24 } else { 64 }).collect();
    let prefixes: Vec<u8> = configured.unwrap_or_else(usual);
    if prefixes.len() != networks.len() {
        return Err(Error::config("etcd.subnetLength", "does not have one length for each range of the network"));
    }
    for (prefix, network) in prefixes.iter().zip(networks) {
        let longest = bits(network.address) - 2;
        if *prefix <= network.prefix || *prefix > longest || prefix - network.prefix > NODE_BITS_MAX {
            let reason = format!(
                "{prefix} is not from {} to {}, for subnets of {network}",
                network.prefix + 1,
                longest.min(network.prefix.saturating_add(NODE_BITS_MAX))
            );
            return Err(Error::config("etcd.subnetLength", reason));
        }
    }
    Ok(prefixes)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(change: Value) -> Result<Settings, String> {
        let mut config = json!({"name": "n", "type": "overlay", "vni": 7, "network": "10.244.0.0/16"});
        for (key, value) in change.as_object().unwrap() {
            config[key] = value.clone();
        }
        Settings::parse(config.as_object().unwrap()).map_err(|error| error.to_string())
    }

    #[test]
    fn one_subnet_or_several() {
        let settings = parse(json!({"network": ["10.244.0.0/16", "fd44::/48"],
            "nodes": {"192.0.2.1": ["10.244.1.0/24", "fd44:0:0:1::/64"]}}));
        let Source::Nodes(nodes) = settings.unwrap().source else { panic!("nodes") };
        assert_eq!(nodes.values().next().unwrap().len(), 2);
        let settings = parse(json!({"etcd": {"endpoints": ["http://192.0.2.9:2379/"], "prefix": "/x/"}})).unwrap();
        let Source::Etcd(etcd) = settings.source else { panic!("etcd") };
        assert_eq!((etcd.endpoints[0].as_str(), etcd.prefix.as_str()), ("http://192.0.2.9:2379", "/x"));
        assert_eq!((etcd.subnet_prefixes, settings.port, settings.masquerades), (vec![24], 4789, true));
        let config = json!({"etcd": {"endpoints": ["http://192.0.2.9:2379"]}, "encrypted": true, "vni": 5000});
        assert_eq!(parse(config).unwrap().port, 61_465);
    }

    #[test]
    fn invalid_settings_are_refused() {
        let etcd = |change: Value| {
            let mut section = json!({"endpoints": ["http://192.0.2.9:2379"]});
            for (key, value) in change.as_object().unwrap() {
                section[key] = value.clone();
            }
            json!({ "etcd": section })
        };
        let cases = [
            (json!({}), "either \"nodes\" or \"etcd\""),
            (json!({"etcd": {"endpoints": []}}), "has 0 endpoints"),
            (json!({"nodes": {}, "etcd": {"endpoints": ["http://a"]}}), "either \"nodes\" or"),
            (json!({"nodes": {"x": "10.244.1.0/24"}}), "configuration"),
            (json!({"vni": -1, "nodes": {}}), "configuration"),
            (json!({"nodes": {}, "stateDir": "x"}), "not an absolute path"),
            (json!({"nodes": {}, "encrypted": true}), "needs \"etcd\""),
            (
                json!({"etcd": {"endpoints": ["http://a"]}, "encrypted": true, "ipMasq": false}),
                "encrypted: needs \"ipMasq\"",
            ),
            (etcd(json!({"endpoints": ["192.0.2.9"]})), "is not an address such as"),
            (etcd(json!({"prefix": "x"})), "is not a path"),
            (etcd(json!({"prefix": "//"})), "is not a path"),
            (etcd(json!({"certFile": "/c"})), "belong together"),
            (etcd(json!({"username": "u"})), "belong together"),
            (etcd(json!({"caFile": "c"})), "not an absolute path"),
            (etcd(json!({"subnetLength": 16})), "16 is not from 17 to 30"),
            (etcd(json!({"subnetLength": 31})), "31 is not from"),
            (etcd(json!({"subnetLength": [24, 64]})), "one length for each"),
            (etcd(json!({"unknown": 1})), "unknown"),
        ];
        for (config, expected) in cases {
            let error = parse(config).unwrap_err();
            assert!(error.contains(expected), "{error:?} has {expected:?}");
        }
    }
}
