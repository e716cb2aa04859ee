//! Options of a bridge network, from the daemon's configuration or from a CNI configuration.

use serde::Deserialize;
use serde_json::Value;

use crate::{
    Config, Error,
    firewall::Scope,
    ipam::{HostLocal, Range, Route},
};
use rtnl::subnet::Subnet;

/// Options of a bridge network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BridgeOptions {
    pub(crate) bridge: String,
    /// Whether the bridge gets the gateway addresses.
    pub(crate) gateway: bool,
    /// Whether pods get default routes through the gateways.
    pub(crate) default_route: bool,
    /// Whether packets that leave the network are masqueraded.
    pub(crate) masquerade: bool,
    pub(crate) hairpin: bool,
    pub(crate) mtu: Option<u32>,
    pub(crate) ipam: HostLocal,
    /// Absent for the built-in network and those of the CNI directory.
    pub(crate) named: Option<NamedBridge>,
}

/// Options of the bridge of a named network, whose pods may request addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NamedBridge {
    /// Whether pods cannot reach other networks, nor be reached from there.
    pub(crate) internal: bool,
    /// Whether pods exchange no frames with each other.
    pub(crate) isolated: bool,
}

/// Options of CNI's `bridge` plugin that the built-in bridge supports. With any other option the configuration is left
/// to the plugin.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Raw {
    #[serde(rename = "type")]
    _kind: String,
    // Keys of a configuration that is not a list.
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
    #[serde(rename = "io.pinion.named")]
    named: Option<NamedBridge>,
}

impl BridgeOptions {
    /// Returns the options of the built-in network.
    pub(crate) fn built_in(config: &Config) -> Result<Self, Error> {
        let range = |setting: &str, text: &str, ipv4: bool| {
            let subnet: Subnet = text.parse().map_err(|e| Error::config(setting, e))?;
            if subnet.address.is_ipv4() != ipv4 {
                return Err(Error::config(setting, format!("{subnet} is not IPv{}", if ipv4 { 4 } else { 6 })));
            }
            Range::whole(subnet).map_err(|e| Error::config(setting, e))
        };
        if !rtnl::valid_name(&config.bridge) {
            return Err(Error::config("network.bridge", format!("{:?} is not a valid link name", config.bridge)));
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
            named: None,
        })
    }

    /// Parses a plugin's configuration; `None` if only the plugin itself supports it.
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
            return Some(Err(format!("bridge {bridge:?} is not a valid link name")));
        }
        Some(Ok(Self {
            bridge,
            gateway: raw.is_gateway || raw.is_default_gateway,
            default_route: raw.is_default_gateway,
            masquerade: raw.ip_masq,
            hairpin: raw.hairpin_mode,
            mtu: (raw.mtu > 0).then_some(raw.mtu),
            ipam,
            named: raw.named,
        }))
    }

    /// Returns what other networks of the node may exchange with this one.
    pub(crate) fn scope(&self) -> Scope {
        match self.named {
            None => Scope::Shared,
            Some(NamedBridge { internal: false, isolated }) => Scope::Named { isolated },
            Some(NamedBridge { internal: true, isolated }) => Scope::Internal { isolated },
        }
    }

    /// Returns all ranges of all sets.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = &Range> {
        self.ipam.sets.iter().flatten()
    }

    /// Returns the subnets of all ranges.
    pub(crate) fn subnets(&self) -> Vec<Subnet> {
        self.ranges().map(|range| range.subnet).collect()
    }

    /// Returns the routes of a pod: the configured ones and the default routes.
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
