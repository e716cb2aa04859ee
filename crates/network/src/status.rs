//! The network status of a pod, as other programs read it from the annotation `k8s.v1.cni.cncf.io/network-status`.

use serde_json::{Map, Value, json};

use crate::Attachment;

impl Attachment {
    /// Returns the network status of the pod: one element for each attachment, the primary one first.
    ///
    /// Source: Kubernetes Network Custom Resource Definition De-facto Standard, section 5.
    #[must_use]
    pub fn network_status(&self) -> Value {
        let first = std::iter::once((self, true));
        first
            .chain(self.secondary.iter().map(|one| (one, false)))
            .map(|(one, is_primary)| element(one, is_primary))
            .collect()
    }
}

fn element(attachment: &Attachment, is_primary: bool) -> Value {
    let mut status = Map::new();
    status.insert("name".into(), json!(attachment.network));
    status.insert("interface".into(), json!(attachment.interface));
    if !attachment.ips.is_empty() {
        status.insert("ips".into(), json!(attachment.ips));
    }
    if let Some(mac) = hardware_address(attachment) {
        status.insert("mac".into(), json!(mac));
    }
    status.insert("default".into(), json!(is_primary));
    let mut dns = Map::new();
    let lists = [
        ("nameservers", &attachment.dns_servers),
        ("search", &attachment.dns_search),
        ("options", &attachment.dns_options),
    ];
    for (name, list) in lists.into_iter().filter(|(_, list)| !list.is_empty()) {
        dns.insert(name.into(), json!(list));
    }
    status.insert("dns".into(), Value::Object(dns));
    Value::Object(status)
}

/// Returns the hardware address of the pod's interface.
fn hardware_address(attachment: &Attachment) -> Option<&str> {
    let interfaces = attachment.raw.get("interfaces")?.as_array()?;
    let text = |one: &'_ Value, key: &str| one.get(key).and_then(Value::as_str).map(str::to_owned);
    let is_it =
        |one: &&Value| text(one, "name").as_deref() == Some(&attachment.interface) && text(one, "sandbox").is_some();
    interfaces.iter().find(is_it)?.get("mac")?.as_str().filter(|mac| !mac.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_primary_network_is_the_default() {
        let attachment = |network: &str, interface: &str, ip: &str| Attachment {
            ips: vec![ip.parse().unwrap()],
            interface: interface.into(),
            network: network.into(),
            raw: json!({"interfaces": [{"name": "br0", "mac": "x"}, {"name": interface, "sandbox": "/x", "mac": "02:00:00:00:00:01"}]}),
            ..Attachment::default()
        };
        let mut pod = attachment("cluster", "eth0", "10.0.0.1");
        pod.dns_servers = vec!["10.0.0.53".into()];
        pod.secondary = vec![attachment("ns/storage", "net1", "fd00::1")];
        let expected = json!([
            {"name": "cluster", "interface": "eth0", "ips": ["10.0.0.1"], "mac": "02:00:00:00:00:01", "default": true,
                "dns": {"nameservers": ["10.0.0.53"]}},
            {"name": "ns/storage", "interface": "net1", "ips": ["fd00::1"], "mac": "02:00:00:00:00:01", "default": false, "dns": {}},
        ]);
        assert_eq!(pod.network_status(), expected);
    }
}
