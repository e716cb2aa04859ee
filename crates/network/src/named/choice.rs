//! What a pod requests of named networks. The request comes from a client of the daemon's socket, never from an
//! annotation: authors of Kubernetes pods control annotations and must not be able to join these networks.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::{
    definition::NetworkDefinition,
    driver::Driver,
    request::{distinct, is_name},
};
use crate::{Error, NetworkSelection};

/// Longest request, in bytes.
const REQUEST_MAX: usize = 64 << 10;
/// Maximum number of networks of a pod, as for those that are selected by annotation.
const NETWORKS_MAX: usize = 16;
/// Maximum number of aliases of a pod in one network.
const ALIASES_MAX: usize = 32;
/// Maximum number of additional lines of `/etc/hosts`.
const HOSTS_MAX: usize = 256;
/// Stands for the address of the node in the pod's first network.
const HOST_GATEWAY: &str = "host-gateway";

/// What a pod requests instead of the network of all pods, and in addition to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PodNetworks {
    /// Named networks, the first one with the default routes. Empty: loopback only. Absent: the network of all pods.
    #[serde(default)]
    pub networks: Option<Vec<NetworkChoice>>,
    /// Additional lines of `/etc/hosts`.
    #[serde(default)]
    pub hosts: Vec<HostEntry>,
}

/// A named network, and what the pod requests of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkChoice {
    /// Name or id of the network.
    pub network: String,
    /// Requested addresses, at most one of each family.
    #[serde(default)]
    pub ips: Vec<IpAddr>,
    /// Requested MAC address.
    #[serde(default)]
    pub mac: Option<String>,
    /// Further names in this network.
    #[serde(default)]
    pub aliases: Vec<String>,
}

/// A line of `/etc/hosts`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostEntry {
    /// Host name.
    pub name: String,
    /// Its address, or `host-gateway` for that of the node in the pod's first network.
    pub address: String,
}

impl PodNetworks {
    /// Parses and checks a request.
    ///
    /// # Errors
    /// What is wrong with it, as text.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        if text.len() > REQUEST_MAX {
            return Err(format!("it is longer than {REQUEST_MAX} bytes"));
        }
        let mut request: Self = serde_json::from_slice(text).map_err(|e| format!("it is not valid: {e}"))?;
        let choices = request.networks.as_deref_mut().unwrap_or_default();
        if choices.len() > NETWORKS_MAX {
            return Err(format!("{} networks; at most {NETWORKS_MAX}", choices.len()));
        }
        choices.iter_mut().try_for_each(NetworkChoice::check)?;
        if !distinct(choices.iter().map(|choice| choice.network.as_str())) {
            return Err("a network is requested twice".into());
        }
        if request.hosts.len() > HOSTS_MAX {
            return Err(format!("{} host names; at most {HOSTS_MAX}", request.hosts.len()));
        }
        request.hosts.iter().try_for_each(HostEntry::check)?;
        Ok(request)
    }
}

impl NetworkChoice {
    /// Checks the choice, and writes its MAC address in lower case.
    ///
    /// # Errors
    /// What is wrong, as text.
    pub fn check(&mut self) -> Result<(), String> {
        let name = self.network.clone();
        let wrong = |what: &str, value: &str| Err(format!("network {name}: {what} {value:?} is not valid"));
        // An id is longer than a name.
        let is_id = name.len() <= 64 && name.bytes().all(|b| b.is_ascii_hexdigit());
        if !is_name(&name) && !is_id {
            return Err(format!("{:?} is not the name of a network", name.chars().take(64).collect::<String>()));
        }
        if self.aliases.len() > ALIASES_MAX {
            return Err(format!("network {name}: {} aliases; at most {ALIASES_MAX}", self.aliases.len()));
        }
        if let Some(alias) = self.aliases.iter().find(|alias| !is_name(alias)) {
            return wrong("alias", alias);
        }
        let families = |ipv4: bool| self.ips.iter().filter(|ip| ip.is_ipv4() == ipv4).count();
        if families(true) > 1 || families(false) > 1 {
            return Err(format!("network {name}: more than one address of a family"));
        }
        let Some(mac) = &self.mac else { return Ok(()) };
        match parse_mac(mac) {
            Some(bytes) if bytes[0] & 1 == 0 && bytes != [0; 6] => {
                self.mac = Some(mac.to_ascii_lowercase());
                Ok(())
            }
            _ => wrong("MAC address", mac),
        }
    }
}

impl HostEntry {
    fn check(&self) -> Result<(), String> {
        let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
        if self.name.is_empty() || self.name.len() > 253 || !self.name.bytes().all(plain) {
            return Err(format!("{:?} is not a host name", self.name.chars().take(64).collect::<String>()));
        }
        match self.address == HOST_GATEWAY || self.address.parse::<IpAddr>().is_ok() {
            true => Ok(()),
            false => Err(format!("host {}: {:?} is neither an IP address nor {HOST_GATEWAY}", self.name, self.address)),
        }
    }

    /// Returns the address; `None` if it is that of the node, which the pod's first network does not have.
    #[must_use]
    pub fn resolve(&self, gateway: Option<IpAddr>) -> Option<IpAddr> {
        if self.address == HOST_GATEWAY { gateway } else { self.address.parse().ok() }
    }
}

pub(crate) fn parse_mac(text: &str) -> Option<[u8; 6]> {
    let mut bytes = [0; 6];
    let mut parts = text.split(':');
    for byte in &mut bytes {
        let part = parts.next().filter(|part| part.len() == 2 && part.bytes().all(|b| b.is_ascii_hexdigit()))?;
        *byte = u8::from_str_radix(part, 16).ok()?;
    }
    parts.next().is_none().then_some(bytes)
}

/// Returns the interface of a pod's network by its position.
pub(crate) fn interface(position: usize) -> String {
    format!("eth{position}")
}

/// Returns what a pod requests, checked against the network.
pub(crate) fn selection(
    definition: &NetworkDefinition,
    choice: &NetworkChoice,
    position: usize,
) -> Result<NetworkSelection, Error> {
    let wrong = |reason: String| Error::selection(format!("network {}", definition.name), reason);
    for ip in &choice.ips {
        let pool = definition.pool_of(*ip).ok_or_else(|| {
            let subnets: Vec<String> = definition.subnets.iter().map(|pool| pool.subnet.to_string()).collect();
            wrong(format!("address {ip} is not in its subnet {}", subnets.join(", ")))
        })?;
        let is_host = *ip != pool.subnet.network() && (ip.is_ipv6() || *ip != pool.subnet.last());
        if !is_host || *ip == pool.gateway || pool.reserved.values().any(|reserved| reserved == ip) {
            return Err(wrong(format!("address {ip} is reserved; choose another one")));
        }
    }
    if choice.mac.is_some() && definition.driver == Driver::Ipvlan {
        return Err(wrong("links of ipvlan have the MAC address of their parent; remove the MAC address".into()));
    }
    Ok(NetworkSelection {
        name: definition.name.clone(),
        interface: interface(position),
        ips: choice.ips.iter().map(ToString::to_string).collect(),
        mac: choice.mac.clone(),
        aliases: choice.aliases.clone(),
        ..NetworkSelection::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_parsed_and_invalid_ones_refused() {
        let valid = br#"{"networks": [{"network": "a", "ips": ["10.0.0.5", "fd00::5"], "mac": "02:AB:00:00:00:01", "aliases": ["db"]}],
            "hosts": [{"name": "h", "address": "host-gateway"}, {"name": "x.y", "address": "::1"}]}"#;
        let request = PodNetworks::parse(valid).expect("valid");
        assert_eq!(request.networks.expect("networks")[0].mac.as_deref(), Some("02:ab:00:00:00:01"));
        let gateway = Some("10.0.0.1".parse().expect("an address"));
        assert_eq!(request.hosts[0].resolve(gateway), gateway);
        assert_eq!(PodNetworks::parse(br#"{"networks": []}"#).expect("none").networks, Some(Vec::new()));
        for (wrong, reason) in [
            ("", "not valid"),
            (r#"{"network": "a"}"#, "unknown field"),
            (r#"{"networks": [{"network": "../a"}]}"#, "not the name of a network"),
            (r#"{"networks": [{"network": "a"}, {"network": "a"}]}"#, "requested twice"),
            (r#"{"networks": [{"network": "a", "ips": ["10.0.0.5", "10.0.0.6"]}]}"#, "more than one address"),
            (r#"{"networks": [{"network": "a", "mac": "01:00:00:00:00:01"}]}"#, "MAC address"),
            (r#"{"networks": [{"network": "a", "mac": "02:00"}]}"#, "MAC address"),
            (r#"{"networks": [{"network": "a", "aliases": ["a b"]}]}"#, "alias"),
            (r#"{"hosts": [{"name": "a b", "address": "::1"}]}"#, "not a host name"),
            (r#"{"hosts": [{"name": "a", "address": "gateway"}]}"#, "neither an IP address"),
        ] {
            let error = PodNetworks::parse(wrong.as_bytes()).expect_err(wrong);
            assert!(error.contains(reason), "{wrong}: {error}");
        }
        assert!(PodNetworks::parse(&vec![b' '; REQUEST_MAX + 1]).is_err());
    }
}
