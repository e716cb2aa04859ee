//! How a bridge network is set up: from the daemon's configuration or a CNI one.

use serde::Deserialize;
use serde_json::Value;

use crate::{
    Config, Error,
    ipam::{HostLocal, Range, Route},
    rtnl,
    subnet::Subnet,
};

/// A bridge network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BridgeOptions {
    pub(crate) bridge: String,
    /// The bridge has the gateways' addresses.
    pub(crate) gateway: bool,
    /// Pods have default routes through them.
    pub(crate) default_route: bool,
    /// Packets that leave the network have the node's address.
    pub(crate) masquerade: bool,
    pub(crate) hairpin: bool,
    pub(crate) mtu: Option<u32>,
    pub(crate) ipam: HostLocal,
}

/// Options of CNI's `bridge` plugin that are understood here; any other makes the configuration the plugin's matter.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Raw {
    #[serde(rename = "type")]
    _kind: String,
    // Parts of a configuration that is no list.
    #[serde(rename = "name")]
    _name: Option<String>,
    #[serde(rename = "cniVersion")]
    _version: Option<String>,
    bridge: Option<String>,
    #[serde(default)]
    is_gateway: bool,
    #[serde(default)]
    is_default_gateway: bool,
    #[serde(default)]
    ip_masq: bool,
    #[serde(rename = "ipMasqBackend")]
    _backend: Option<String>,
    #[serde(default)]
    hairpin_mode: bool,
    #[serde(default)]
    mtu: u32,
    ipam: Value,
}

impl BridgeOptions {
    /// The network of the daemon's configuration.
    pub(crate) fn embedded(config: &Config) -> Result<Self, Error> {
        let range = |setting: &str, text: &str, ipv4: bool| {
            let subnet: Subnet = text.parse().map_err(|e| Error::config(setting, e))?;
            if subnet.address.is_ipv4() != ipv4 {
                return Err(Error::config(setting, format!("{subnet} is not IPv{}", if ipv4 { 4 } else { 6 })));
            }
            Range::whole(subnet).map_err(|e| Error::config(setting, e))
        };
        if !rtnl::valid_name(&config.bridge) {
            return Err(Error::config("network.bridge", format!("{:?} cannot be a link's name", config.bridge)));
        }
        let mut sets = vec![vec![range("network.subnet", &config.subnet, true)?]];
        if let Some(subnet6) = &config.subnet6 {
            sets.push(vec![range("network.subnet6", subnet6, false)?]);
        }
        Ok(Self {
            bridge: config.bridge.clone(),
            gateway: true,
            default_route: true,
            masquerade: true,
            hairpin: true,
            mtu: None,
            ipam: HostLocal { sets, routes: Vec::new(), data_dir: None },
        })
    }

    /// From a plugin's configuration; `None` when it is one for the plugin itself.
    pub(crate) fn parse(plugin: &Value) -> Option<Result<Self, String>> {
        let raw: Raw = serde_json::from_value(plugin.clone()).ok()?;
        if raw.ipam.get("type").and_then(Value::as_str) != Some("host-local") {
            return None;
        }
        let ipam = match HostLocal::parse(&raw.ipam)? {
            Ok(ipam) => ipam,
            Err(e) => return Some(Err(e)),
        };
        let bridge = raw.bridge.unwrap_or_else(|| "cni0".into());
        if !rtnl::valid_name(&bridge) {
            return Some(Err(format!("bridge {bridge:?} cannot be a link's name")));
        }
        Some(Ok(Self {
            bridge,
            gateway: raw.is_gateway || raw.is_default_gateway,
            default_route: raw.is_default_gateway,
            masquerade: raw.ip_masq,
            hairpin: raw.hairpin_mode,
            mtu: (raw.mtu > 0).then_some(raw.mtu),
            ipam,
        }))
    }

    /// Every range.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = &Range> {
        self.ipam.sets.iter().flatten()
    }

    /// Routes of a pod: those configured, and the default ones.
    pub(crate) fn routes(&self, gateways: &[std::net::IpAddr]) -> Vec<Route> {
        let mut routes = self.ipam.routes.clone();
        for gateway in gateways.iter().filter(|_| self.default_route) {
            let any = if gateway.is_ipv4() { "0.0.0.0/0" } else { "::/0" };
            let dst: Subnet = any.parse().expect("a subnet");
            if !routes.iter().any(|route| route.dst == dst) {
                routes.push(Route { dst, gw: Some(*gateway) });
            }
        }
        routes
    }
}
