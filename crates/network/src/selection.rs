//! Further networks of a pod, as its annotation selects them.
//!
//! Source: Kubernetes Network Custom Resource Definition De-facto Standard, versions 1 to 1.3, of the Network Plumbing
//! Working Group.

mod parse;

use std::{collections::BTreeMap, net::IpAddr};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use rtnl::subnet::Subnet;

use crate::PortMapping;

pub(crate) use parse::parse;

/// A network that a pod is attached to, and what it requests of this network.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkSelection {
    /// Name of the network.
    pub name: String,
    /// Kubernetes namespace of the network's definition. Networks of the CNI directory have none, so it is only shown.
    pub namespace: String,
    /// Interface in the pod.
    pub interface: String,
    /// Requested addresses, with or without a prefix length.
    pub ips: Vec<String>,
    /// Requested hardware address, in lower case.
    pub mac: Option<String>,
    /// Requested InfiniBand GUID.
    pub infiniband_guid: Option<String>,
    /// Ports of the node that are mapped to this attachment.
    pub ports: Vec<PortMapping>,
    /// Limits of the bandwidth, as the `bandwidth` plugin defines them.
    pub bandwidth: Option<Value>,
    /// Gateways of the pod's default routes. If it is empty, the pod's default routes stay those of its primary network.
    pub default_route: Vec<IpAddr>,
    /// Members of `args.cni` of every plugin's configuration.
    pub cni_args: Map<String, Value>,
    /// Further names of the pod on the network.
    pub aliases: Vec<String>,
    /// Ranges of addresses, as `ranges` of `host-local`.
    pub ip_ranges: Option<Value>,
    /// Identifier of a device, for example a PCI address.
    pub device_id: Option<String>,
}

impl NetworkSelection {
    /// Parses the value of the annotation `k8s.v1.cni.cncf.io/networks` of a pod of this Kubernetes namespace.
    /// Interfaces without a requested name are `net1`, `net2`, ….
    ///
    /// # Errors
    /// What is wrong with the value, as text.
    pub fn parse(value: &str, namespace: &str) -> Result<Vec<Self>, String> {
        parse(value, namespace)
    }

    /// Parses what a pod requests of its primary network: a JSON object with the members of the annotation's elements,
    /// except `name`, `namespace` and `interface`.
    ///
    /// # Errors
    /// What is wrong with the value, as text.
    pub fn parse_primary(value: &str) -> Result<Self, String> {
        parse::parse_primary(value)
    }

    /// Returns the name that the network has in the pod's network status.
    pub(crate) fn qualified_name(&self) -> String {
        if self.namespace.is_empty() { self.name.clone() } else { format!("{}/{}", self.namespace, self.name) }
    }

    /// Returns the capability arguments that the selection requests (CNI's CONVENTIONS.md), without `portMappings`.
    pub(crate) fn capability_args(&self) -> BTreeMap<String, Value> {
        let mut args = BTreeMap::new();
        let mut add = |name: &str, value: Option<Value>| args.extend(value.map(|value| (name.to_owned(), value)));
        add("ips", (!self.ips.is_empty()).then(|| json!(self.ips)));
        add("mac", self.mac.as_ref().map(|mac| json!(mac)));
        add("infinibandGUID", self.infiniband_guid.as_ref().map(|guid| json!(guid)));
        add("bandwidth", self.bandwidth.clone());
        add("aliases", (!self.aliases.is_empty()).then(|| json!(self.aliases)));
        add("ipRanges", self.ip_ranges.clone());
        add("deviceID", self.device_id.as_ref().map(|id| json!(id)));
        args
    }

    /// Returns the pairs for `CNI_ARGS`, which plugins without capabilities read.
    pub(crate) fn arguments(&self) -> Vec<(&'static str, String)> {
        let mut pairs = Vec::new();
        // `host-local` and `static` accept one address there.
        if let [ip] = &self.ips[..] {
            pairs.push(("IP", ip.clone()));
        }
        pairs.extend(self.mac.clone().map(|mac| ("MAC", mac)));
        pairs
    }

    /// Returns the members of `args.cni`: those of the annotation, and the requested addresses, as the standard demands.
    pub(crate) fn args(&self) -> Map<String, Value> {
        let mut args = self.cni_args.clone();
        if !self.ips.is_empty() {
            args.entry("ips").or_insert_with(|| json!(self.ips));
        }
        if let Some(mac) = &self.mac {
            args.entry("mac").or_insert_with(|| json!(mac));
        }
        args
    }

    /// Checks that a result has the requested addresses: plugins may ignore a request, and the standard demands that the
    /// attachment fails then.
    ///
    /// # Errors
    /// What is missing, as text.
    pub(crate) fn check(&self, result: &Value) -> Result<(), String> {
        let list = |key: &str| result.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let address = |text: &str| text.split('/').next().and_then(|ip| ip.parse::<IpAddr>().ok());
        let assigned: Vec<IpAddr> = list("ips")
            .iter()
            .filter_map(|ip| serde_json::from_value::<Subnet>(ip.get("address")?.clone()).ok())
            .map(|subnet| subnet.address)
            .collect();
        if let Some(missing) = self.ips.iter().find(|ip| address(ip).is_none_or(|ip| !assigned.contains(&ip))) {
            return Err(format!(
                "its plugins did not assign the requested address {missing}; one of them has to declare the capability ips"
            ));
        }
        let Some(mac) = &self.mac else { return Ok(()) };
        let is_it = |interface: &&Value| interface.get("name").and_then(Value::as_str) == Some(self.interface.as_str());
        let actual = list("interfaces").iter().find(is_it).and_then(|one| one.get("mac")).and_then(Value::as_str);
        match actual.is_some_and(|actual| actual.eq_ignore_ascii_case(mac)) {
            true => Ok(()),
            false => Err(format!(
                "its plugins did not assign the requested address {mac}; one of them has to declare the capability mac"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selection() -> NetworkSelection {
        NetworkSelection {
            name: "n".into(),
            interface: "net1".into(),
            ips: vec!["10.0.0.5/24".into()],
            mac: Some("02:00:00:00:00:01".into()),
            ..NetworkSelection::default()
        }
    }

    #[test]
    fn requests_become_arguments() {
        let selection = selection();
        assert_eq!(
            selection.capability_args(),
            BTreeMap::from([("ips".into(), json!(["10.0.0.5/24"])), ("mac".into(), json!("02:00:00:00:00:01"))])
        );
        assert_eq!(selection.arguments(), [("IP", "10.0.0.5/24".into()), ("MAC", "02:00:00:00:00:01".into())]);
        assert_eq!(Value::Object(selection.args()), json!({"ips": ["10.0.0.5/24"], "mac": "02:00:00:00:00:01"}));
        assert_eq!(NetworkSelection::default().args(), Map::new());
    }

    #[test]
    fn a_result_must_have_what_was_requested() {
        let result = |ip: &str, mac: &str| json!({"interfaces": [{"name": "net1", "mac": mac, "sandbox": "/x"}], "ips": [{"address": ip, "interface": 0}]});
        let check = |ip, mac| selection().check(&result(ip, mac));
        check("10.0.0.5/24", "02:00:00:00:00:01").unwrap();
        assert!(check("10.0.0.6/24", "02:00:00:00:00:01").unwrap_err().contains("10.0.0.5/24"));
        assert!(check("10.0.0.5/24", "02:00:00:00:00:02").unwrap_err().contains("capability mac"));
        assert!(selection().check(&json!({})).is_err());
        NetworkSelection::default().check(&json!({})).unwrap();
    }
}
