//! Results of plugins, in the formats of all supported versions.

use std::net::IpAddr;

use rtnl::subnet::Subnet;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Error;

/// Supported versions of the specification, the oldest first.
pub const VERSIONS: [&str; 5] = ["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"];
/// Maximum length of every list in a result.
const LIST_MAX: usize = 256;

/// The result of an `ADD`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PluginResult {
    /// Interfaces of the node and of the pod.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<Interface>,
    /// Addresses of the interfaces.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ips: Vec<Ip>,
    /// Routes of the pod.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<Route>,
    /// Name servers.
    #[serde(default, skip_serializing_if = "Dns::is_empty")]
    pub dns: Dns,
}

/// An interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    /// Name.
    #[serde(default)]
    pub name: String,
    /// MAC address.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub mac: String,
    /// Maximum transmission unit (1.1.0).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub mtu: u32,
    /// Path of the network namespace; empty for an interface of the node.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub sandbox: String,
    /// Path of the socket of a vhost-user interface (1.1.0).
    #[serde(default, rename = "socketPath", skip_serializing_if = "String::is_empty")]
    pub socket_path: String,
    /// PCI address (1.1.0).
    #[serde(default, rename = "pciID", skip_serializing_if = "String::is_empty")]
    pub pci_id: String,
}

/// An address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ip {
    /// Index of the interface in the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<usize>,
    /// Address with the prefix length of its subnet.
    pub address: Subnet,
    /// Gateway of the subnet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<IpAddr>,
}

/// A route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// Destination.
    pub dst: Subnet,
    /// Gateway; `None` for that of the address of the same family.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gw: Option<IpAddr>,
    /// Maximum transmission unit of the path.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub mtu: u32,
    /// Maximum segment size to advertise.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub advmss: u32,
    /// Priority; routes with smaller numbers are preferred.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub priority: u32,
    /// Table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<u32>,
    /// Scope (`RT_SCOPE_*`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<u8>,
}

/// Name servers of a network.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dns {
    /// Addresses of name servers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nameservers: Vec<String>,
    /// Local domain.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub domain: String,
    /// Search domains.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub search: Vec<String>,
    /// Resolver options.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Dns {
    /// Reports whether nothing is configured.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Route {
    /// Returns a route with the defaults of everything else.
    #[must_use]
    pub fn new(dst: Subnet, gw: Option<IpAddr>) -> Self {
        Self { dst, gw, mtu: 0, advmss: 0, priority: 0, table: None, scope: None }
    }
}

impl PluginResult {
    /// Parses the result of another plugin, whose lists are bounded.
    pub(crate) fn parse(value: &Value) -> Result<Self, Error> {
        let invalid = |reason: String| Error::config("prevResult", reason);
        if !value.is_object() {
            return Err(invalid("not a JSON object".into()));
        }
        let result: Self = serde_json::from_value(value.clone()).map_err(|e| invalid(e.to_string()))?;
        let lengths = [
            result.interfaces.len(),
            result.ips.len(),
            result.routes.len(),
            result.dns.nameservers.len(),
            result.dns.search.len(),
            result.dns.options.len(),
        ];
        if lengths.into_iter().any(|length| length > LIST_MAX) {
            return Err(invalid(format!("a list is longer than {LIST_MAX}")));
        }
        Ok(result)
    }

    /// Returns the result in the format of a version.
    #[must_use]
    pub fn to_json(&self, version: &str) -> Value {
        // Serialization of these types cannot fail.
        let mut value = serde_json::to_value(self).unwrap_or_default();
        value["cniVersion"] = version.into();
        if version < "1.0.0" {
            for ip in value["ips"].as_array_mut().into_iter().flatten() {
                let is_v6 = ip["address"].as_str().is_some_and(|address| address.contains(':'));
                ip["version"] = if is_v6 { "6" } else { "4" }.into();
            }
            for interface in value["interfaces"].as_array_mut().into_iter().flatten() {
                if let Some(interface) = interface.as_object_mut() {
                    interface.retain(|key, _| matches!(key.as_str(), "name" | "mac" | "sandbox"));
                }
            }
            if self.dns.is_empty() {
                value["dns"] = Value::Object(serde_json::Map::new());
            }
            // Indexing inserts what it does not find.
            if let Some(object) = value.as_object_mut() {
                object.retain(|_, value| !value.is_null());
            }
        }
        value
    }

    /// Returns the index of the pod's interface of a name, which is in the namespace with this path.
    pub(crate) fn pod_interface(&self, name: &str, sandbox: &str) -> Option<usize> {
        self.interfaces.iter().position(|interface| interface.name == name && interface.sandbox == sandbox)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_result_has_the_format_of_its_version() {
        let new = json!({"cniVersion": "1.1.0", "interfaces": [{"name": "eth0", "sandbox": "/n", "mtu": 9000}],
            "ips": [{"address": "10.1.0.2/24", "gateway": "10.1.0.1", "interface": 0}, {"address": "fd00::2/64"}],
            "routes": [{"dst": "0.0.0.0/0", "priority": 5}]});
        let result = PluginResult::parse(&new).unwrap();
        assert_eq!(result.to_json("1.1.0"), new);
        let old = json!({"cniVersion": "0.4.0", "interfaces": [{"name": "eth0", "sandbox": "/n"}],
            "ips": [{"version": "4", "address": "10.1.0.2/24", "gateway": "10.1.0.1", "interface": 0},
                {"version": "6", "address": "fd00::2/64"}],
            "routes": [{"dst": "0.0.0.0/0", "priority": 5}], "dns": {}});
        assert_eq!(result.to_json("0.4.0"), old);
        assert_eq!(PluginResult::default().to_json("0.3.0"), json!({"cniVersion": "0.3.0", "dns": {}}));
    }

    #[test]
    fn hostile_results_are_refused() {
        let ips: Vec<Value> = (0..=LIST_MAX).map(|_| json!({"address": "10.0.0.1/8"})).collect();
        for value in [json!({"ips": ips}), json!({"ips": [{"address": "10.0.0.1/99"}]}), json!([]), json!({"ips": 5})] {
            assert!(PluginResult::parse(&value).is_err(), "{value}");
        }
    }
}
