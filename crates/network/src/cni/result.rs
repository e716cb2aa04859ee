//! Results of CNI plugins and of the built-in bridge. Results of other programs are validated.

use std::{net::IpAddr, path::Path};

use serde::Deserialize;
use serde_json::{Value, json};

use crate::{Attachment, bridge::Endpoint};
use rtnl::subnet::Subnet;

/// Maximum length of every list in a result.
const LIST_MAX: usize = 64;
/// Maximum length of a domain name (RFC 1035).
const NAME_MAX: usize = 255;

#[derive(Deserialize, Default)]
struct Raw {
    #[serde(default)]
    interfaces: Vec<Interface>,
    #[serde(default)]
    ips: Vec<Ip>,
    #[serde(default)]
    dns: Dns,
}

#[derive(Deserialize)]
struct Interface {
    #[serde(default)]
    name: String,
    #[serde(default)]
    sandbox: String,
}

#[derive(Deserialize)]
struct Ip {
    address: Subnet,
    interface: Option<usize>,
}

#[derive(Deserialize, Default)]
struct Dns {
    #[serde(default)]
    nameservers: Vec<String>,
    #[serde(default)]
    domain: String,
    #[serde(default)]
    search: Vec<String>,
    #[serde(default)]
    options: Vec<String>,
}

fn parse(result: &Value) -> Result<Raw, String> {
    let raw: Raw = serde_json::from_value(result.clone()).map_err(|e| format!("its result is not valid: {e}"))?;
    let many =
        [raw.interfaces.len(), raw.ips.len(), raw.dns.nameservers.len(), raw.dns.search.len(), raw.dns.options.len()];
    if many.iter().any(|n| *n > LIST_MAX) {
        return Err(format!("its result is not valid: a list is longer than {LIST_MAX}"));
    }
    for text in raw.dns.nameservers.iter().chain(&raw.dns.search).chain(&raw.dns.options).chain([&raw.dns.domain]) {
        // These become lines of the pod's resolv.conf.
        if text.len() > NAME_MAX || text.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err(format!("its result is not valid: dns {:?}", text.chars().take(NAME_MAX).collect::<String>()));
        }
    }
    Ok(raw)
}

/// Returns the pod's addresses: those on `interface` first, then those on other interfaces of the pod.
fn pod_addresses(raw: &Raw, interface: &str) -> Vec<IpAddr> {
    let place = |ip: &Ip| match ip.interface.and_then(|index| raw.interfaces.get(index)) {
        Some(link) if link.sandbox.is_empty() => None,
        Some(link) => Some(link.name != interface),
        None => Some(false),
    };
    let mut ips: Vec<(bool, IpAddr)> = raw.ips.iter().filter_map(|ip| Some((place(ip)?, ip.address.address))).collect();
    ips.sort_by_key(|(other, _)| *other);
    ips.into_iter().map(|(_, ip)| ip).collect()
}

/// Returns the pod's addresses of a result.
pub(crate) fn addresses(result: &Value, interface: &str) -> Result<Vec<IpAddr>, String> {
    Ok(pod_addresses(&parse(result)?, interface))
}

/// Converts a result to an attachment.
pub(crate) fn attachment(result: Value, interface: &str) -> Result<Attachment, String> {
    let raw = parse(&result)?;
    let ips = pod_addresses(&raw, interface);
    let mut dns_search = raw.dns.search;
    if !raw.dns.domain.is_empty() && !dns_search.contains(&raw.dns.domain) {
        dns_search.insert(0, raw.dns.domain);
    }
    Ok(Attachment {
        ips,
        interface: interface.to_owned(),
        dns_servers: raw.dns.nameservers,
        dns_search,
        dns_options: raw.dns.options,
        raw: result,
        ..Attachment::default()
    })
}

/// Builds the result of the built-in bridge, in the format of the list's version.
pub(crate) fn from_endpoint(endpoint: &Endpoint, version: &str, interface: &str, ns_path: &Path) -> Value {
    let ip = |(subnet, gateway): &(Subnet, IpAddr)| {
        let mut ip = json!({"address": subnet.to_string(), "gateway": gateway.to_string(), "interface": 2});
        if version < "1.0.0" {
            ip["version"] = json!(if subnet.address.is_ipv4() { "4" } else { "6" });
        }
        ip
    };
    json!({
        "cniVersion": version,
        "interfaces": [
            {"name": endpoint.bridge, "mac": endpoint.bridge_mac},
            {"name": endpoint.host},
            {"name": interface, "mac": endpoint.mac, "sandbox": ns_path},
        ],
        "ips": endpoint.addresses.iter().map(ip).collect::<Vec<_>>(),
        "routes": endpoint.routes,
        "dns": {},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_pods_addresses_are_used_primary_first() {
        let result = json!({"interfaces": [{"name": "br0"}, {"name": "net1", "sandbox": "/x"}, {"name": "eth0", "sandbox": "/x"}],
            "ips": [{"address": "10.0.0.1/8", "interface": 0}, {"address": "10.0.0.3/8", "interface": 1},
                {"address": "10.0.0.2/8", "interface": 2}, {"address": "fd00::2/64", "interface": 2}],
            "dns": {"nameservers": ["10.0.0.53"], "domain": "a.b", "search": ["c.d"]}});
        let attachment = attachment(result, "eth0").unwrap();
        assert_eq!(
            attachment.ips.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["10.0.0.2", "fd00::2", "10.0.0.3"]
        );
        assert_eq!(attachment.dns_search, ["a.b", "c.d"]);
    }

    #[test]
    fn hostile_results_are_refused() {
        let ips: Vec<Value> = (0..65).map(|_| json!({"address": "10.0.0.1/8"})).collect();
        let cases = [
            json!({"ips": [{"address": "10.0.0.1"}]}),
            json!({"ips": [{"address": "10.0.0.1/99"}]}),
            json!({"ips": "10.0.0.1/8"}),
            json!({"ips": ips}),
            json!({"dns": {"nameservers": ["10.0.0.1\nnameserver 6.6.6.6"]}}),
            json!({"dns": {"search": ["x".repeat(256)]}}),
        ];
        for case in cases {
            assert!(attachment(case.clone(), "eth0").is_err(), "{case}");
        }
    }
}
