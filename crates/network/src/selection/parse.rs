//! Parses the annotation that selects networks. It comes from the pod's author, so everything in it is bounded.

use std::{collections::HashSet, net::IpAddr};

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::NetworkSelection;
use crate::{
    PortMapping, Protocol,
    attachment_key::{INTERFACE, is_interface},
};

/// Longest value, in bytes. Kubernetes limits all annotations of an object to 256 KiB.
const VALUE_MAX: usize = 64 << 10;
/// Maximum number of networks.
const NETWORKS_MAX: usize = 16;
/// Maximum length of every list of a network.
const LIST_MAX: usize = 64;
/// Longest name, in bytes.
const NAME_MAX: usize = 200;

/// One element of the JSON form. Names without a period are reserved by the standard.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    name: String,
    #[serde(default)]
    namespace: String,
    interface: Option<String>,
    #[serde(default)]
    ips: Vec<String>,
    mac: Option<String>,
    #[serde(rename = "infiniband-guid")]
    infiniband_guid: Option<String>,
    #[serde(default, rename = "portMappings")]
    ports: Vec<RawPort>,
    bandwidth: Option<RawBandwidth>,
    #[serde(default, rename = "default-route")]
    default_route: Vec<IpAddr>,
    #[serde(rename = "cni-args")]
    cni_args: Option<Map<String, Value>>,
    #[serde(default, rename = "io.pinion.aliases")]
    aliases: Vec<String>,
    #[serde(rename = "io.pinion.ip-ranges")]
    ip_ranges: Option<Vec<Vec<Map<String, Value>>>>,
    #[serde(rename = "io.pinion.device-id")]
    device_id: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawPort {
    host_port: u16,
    container_port: u16,
    protocol: Option<String>,
    #[serde(rename = "hostIP")]
    host_ip: Option<String>,
}

/// Rates in bits per second, bursts in bits.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawBandwidth {
    #[serde(default)]
    ingress_rate: u64,
    #[serde(default)]
    ingress_burst: u64,
    #[serde(default)]
    egress_rate: u64,
    #[serde(default)]
    egress_burst: u64,
}

/// Parses the short form (`[NAMESPACE/]NAME[@INTERFACE],…`) or the JSON form.
pub(crate) fn parse(value: &str, namespace: &str) -> Result<Vec<NetworkSelection>, String> {
    if value.len() > VALUE_MAX {
        return Err(format!("it is longer than {VALUE_MAX} bytes"));
    }
    let mut selections = match value.contains(['[', '{', '"']) {
        true => elements(value)?.into_iter().map(selection).collect::<Result<Vec<_>, _>>()?,
        false => value.split(',').map(str::trim).filter(|one| !one.is_empty()).map(short).collect::<Result<_, _>>()?,
    };
    if selections.len() > NETWORKS_MAX {
        return Err(format!("it selects {} networks; at most {NETWORKS_MAX} are supported", selections.len()));
    }
    for selection in selections.iter_mut().filter(|selection| selection.namespace.is_empty()) {
        namespace.clone_into(&mut selection.namespace);
    }
    name_interfaces(&mut selections)?;
    let has_default = selections.iter().filter(|selection| !selection.default_route.is_empty()).count();
    if has_default > 1 {
        return Err("more than one network has a default-route".into());
    }
    Ok(selections)
}

pub(super) fn parse_primary(value: &str) -> Result<NetworkSelection, String> {
    if value.len() > VALUE_MAX {
        return Err(format!("it is longer than {VALUE_MAX} bytes"));
    }
    let mut map: Map<String, Value> = serde_json::from_str(value).map_err(|e| format!("it is not valid: {e}"))?;
    for (key, given) in [("name", "primary"), ("interface", INTERFACE), ("namespace", "")] {
        if map.insert(key.into(), given.into()).is_some() {
            return Err(format!("{key} cannot be chosen for the primary network"));
        }
    }
    let selection = element(map).and_then(selection)?;
    match selection.default_route.is_empty() && selection.ports.is_empty() {
        true => Ok(selection),
        false => Err("default-route and portMappings cannot be set for the primary network".into()),
    }
}

fn elements(value: &str) -> Result<Vec<Raw>, String> {
    let list: Vec<Map<String, Value>> = serde_json::from_str(value).map_err(|e| format!("it is not valid: {e}"))?;
    list.into_iter().enumerate().map(|(index, map)| element(map).map_err(|e| format!("[{index}]: {e}"))).collect()
}

/// Parses an element. A key with a period belongs to another implementation and is ignored.
fn element(map: Map<String, Value>) -> Result<Raw, String> {
    let known = |key: &str| !key.contains('.') || key.starts_with("io.pinion.");
    let map: Map<String, Value> = map.into_iter().filter(|(key, value)| known(key) && !value.is_null()).collect();
    serde_json::from_value(Value::Object(map)).map_err(|e| e.to_string())
}

fn short(text: &str) -> Result<NetworkSelection, String> {
    let (namespace, rest) = text.split_once('/').unwrap_or(("", text));
    let (name, interface) = rest.split_once('@').map_or((rest, None), |(name, interface)| (name, Some(interface)));
    selection(Raw {
        name: name.trim().to_owned(),
        namespace: namespace.trim().to_owned(),
        interface: interface.map(|interface| interface.trim().to_owned()),
        ips: Vec::new(),
        mac: None,
        infiniband_guid: None,
        ports: Vec::new(),
        bandwidth: None,
        default_route: Vec::new(),
        cni_args: None,
        aliases: Vec::new(),
        ip_ranges: None,
        device_id: None,
    })
}

fn selection(raw: Raw) -> Result<NetworkSelection, String> {
    let name = &raw.name;
    if !is_name(name) {
        return Err(format!("{name:?} is not the name of a network"));
    }
    let failed = |what: &str, value: &str| format!("network {name}: {what} {value:?} is not valid");
    if !raw.namespace.is_empty() && !is_name(&raw.namespace) {
        return Err(failed("namespace", &raw.namespace));
    }
    if let Some(interface) = raw.interface.as_ref().filter(|interface| !is_interface(interface)) {
        return Err(failed("interface", interface));
    }
    let lists = [raw.ips.len(), raw.ports.len(), raw.default_route.len(), raw.aliases.len()];
    if lists.iter().chain(raw.ip_ranges.iter().map(Vec::len).collect::<Vec<_>>().iter()).any(|n| *n > LIST_MAX) {
        return Err(format!("network {name}: a list is longer than {LIST_MAX}"));
    }
    if let Some(ip) = raw.ips.iter().find(|ip| !is_address(ip)) {
        return Err(failed("address", ip));
    }
    // An IP-over-InfiniBand address has 20 bytes (RFC 4391), a GUID 8.
    if let Some(mac) = raw.mac.as_ref().filter(|mac| !is_hardware_address(mac, &[6, 20])) {
        return Err(failed("mac", mac));
    }
    if let Some(guid) = raw.infiniband_guid.as_ref().filter(|guid| !is_hardware_address(guid, &[8])) {
        return Err(failed("infiniband-guid", guid));
    }
    if let Some(alias) = raw.aliases.iter().find(|alias| !is_name(alias)) {
        return Err(failed("alias", alias));
    }
    if let Some(id) = raw.device_id.as_ref().filter(|id| id.len() > NAME_MAX || id.contains(char::is_control)) {
        return Err(failed("device", id));
    }
    let ports = raw.ports.into_iter().map(port).collect::<Result<_, _>>();
    Ok(NetworkSelection {
        ports: ports.map_err(|e| format!("network {name}: {e}"))?,
        namespace: raw.namespace,
        interface: raw.interface.unwrap_or_default(),
        ips: raw.ips,
        mac: raw.mac.map(|mac| mac.to_ascii_lowercase()),
        infiniband_guid: raw.infiniband_guid,
        bandwidth: raw.bandwidth.map(bandwidth),
        default_route: raw.default_route,
        cni_args: raw.cni_args.unwrap_or_default(),
        aliases: raw.aliases,
        ip_ranges: raw.ip_ranges.map(|ranges| json!(ranges)),
        device_id: raw.device_id,
        name: raw.name,
    })
}

fn port(raw: RawPort) -> Result<PortMapping, String> {
    let protocol = match raw.protocol.as_deref().unwrap_or("tcp").to_ascii_lowercase().as_str() {
        "tcp" => Protocol::Tcp,
        "udp" => Protocol::Udp,
        "sctp" => Protocol::Sctp,
        other => return Err(format!("protocol {other:?} is not valid")),
    };
    let host_ip = raw.host_ip.filter(|ip| !ip.is_empty());
    let host_ip = host_ip.map(|ip| ip.parse().map_err(|_| format!("hostIP {ip:?} is not valid"))).transpose()?;
    if raw.container_port == 0 {
        return Err("containerPort 0 is not valid".into());
    }
    Ok(PortMapping { protocol, container_port: raw.container_port, host_port: raw.host_port, host_ip })
}

fn bandwidth(raw: RawBandwidth) -> Value {
    let pairs = [
        ("ingressRate", raw.ingress_rate),
        ("ingressBurst", raw.ingress_burst),
        ("egressRate", raw.egress_rate),
        ("egressBurst", raw.egress_burst),
    ];
    let set = pairs.into_iter().filter(|(_, value)| *value > 0);
    Value::Object(set.map(|(name, value)| (name.to_owned(), json!(value))).collect())
}

/// Names the interfaces without a name: `net1`, `net2`, … by their place, as Multus does.
fn name_interfaces(selections: &mut [NetworkSelection]) -> Result<(), String> {
    let mut taken = HashSet::from([INTERFACE.to_owned(), "lo".to_owned()]);
    for (index, selection) in selections.iter_mut().enumerate() {
        if selection.interface.is_empty() {
            selection.interface = format!("net{}", index + 1);
        }
        if !taken.insert(selection.interface.clone()) {
            return Err(format!("network {}: interface {} is used twice", selection.name, selection.interface));
        }
    }
    Ok(())
}

fn is_name(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    name.len() <= NAME_MAX && name.as_bytes().first().is_some_and(u8::is_ascii_alphanumeric) && name.bytes().all(plain)
}

fn is_address(text: &str) -> bool {
    let (address, prefix) = text.split_once('/').map_or((text, None), |(address, prefix)| (address, Some(prefix)));
    let Ok(address) = address.parse::<IpAddr>() else { return false };
    let bits = if address.is_ipv4() { 32 } else { 128 };
    prefix.is_none_or(|prefix| prefix.parse::<u8>().is_ok_and(|prefix| prefix <= bits))
}

fn is_hardware_address(text: &str, lengths: &[usize]) -> bool {
    let bytes: Vec<&str> = text.split(':').collect();
    lengths.contains(&bytes.len())
        && bytes.iter().all(|byte| byte.len() == 2 && byte.bytes().all(|b| b.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(value: &str) -> Vec<String> {
        let one = |s: &NetworkSelection| format!("{}/{}@{}", s.namespace, s.name, s.interface);
        parse(value, "default").unwrap_or_else(|e| panic!("{value}: {e}")).iter().map(one).collect()
    }

    #[test]
    fn the_short_form() {
        assert_eq!(names("a, other/b@store0 ,c"), ["default/a@net1", "other/b@store0", "default/c@net3"]);
        assert_eq!(names("a,a"), ["default/a@net1", "default/a@net2"]);
        assert_eq!(names(" "), Vec::<String>::new());
    }

    #[test]
    fn the_json_form() {
        let value = r#"[{"name": "a", "namespace": "other", "interface": "x1", "ips": ["10.0.0.5/24", "fd00::5"],
            "mac": "02:AB:00:00:00:01", "infiniband-guid": "c2:11:22:33:44:55:66:77", "cni-args": {"vlan": 5},
            "portMappings": [{"hostPort": 80, "containerPort": 8080, "protocol": "UDP", "hostIP": "127.0.0.1"}],
            "bandwidth": {"ingressRate": 1000, "ingressBurst": 2000, "egressRate": 0, "egressBurst": 0},
            "default-route": ["10.0.0.1"], "io.pinion.aliases": ["db"], "io.pinion.ip-ranges": [[{"subnet": "10.1.0.0/24"}]],
            "org.example.key": 1}, {"name": "b", "interface": null}]"#;
        assert_eq!(names(value), ["other/a@x1", "default/b@net2"]);
        let one = parse(value, "default").unwrap().remove(0);
        assert_eq!(one.mac.as_deref(), Some("02:ab:00:00:00:01"));
        assert_eq!(one.bandwidth, Some(json!({"ingressRate": 1000, "ingressBurst": 2000})));
        let port = &one.ports[0];
        assert_eq!((port.protocol, port.host_port, port.container_port), (Protocol::Udp, 80, 8080));
        assert_eq!((one.cni_args["vlan"].as_u64(), one.default_route.len(), one.aliases.len()), (Some(5), 1, 1));
    }

    #[test]
    fn damaged_values_do_not_get_past_the_bounds() {
        let seeds = [
            "storage@st0, other/backup,a,b",
            r#"[{"name": "a", "ips": ["10.0.0.5/24"], "mac": "02:00:00:00:00:01", "default-route": ["10.0.0.1"],
                "portMappings": [{"hostPort": 80, "containerPort": 80}], "bandwidth": {"ingressRate": 5}}]"#,
        ];
        // xorshift64, so that every run has the same changes.
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as usize
        };
        let mut accepted = 0;
        for round in 0..20_000 {
            let mut bytes = seeds[round % seeds.len()].as_bytes().to_vec();
            for _ in 0..=next() % 4 {
                let at = next() % bytes.len();
                match next() % 3 {
                    0 => bytes[at] = (next() % 128) as u8,
                    1 => drop(bytes.remove(at)),
                    _ => bytes.extend_from_within(at..),
                }
            }
            let Ok(selections) = parse(&String::from_utf8_lossy(&bytes), "default") else { continue };
            accepted += 1;
            let interfaces: HashSet<&str> = selections.iter().map(|one| one.interface.as_str()).collect();
            assert!(selections.len() <= NETWORKS_MAX && interfaces.len() == selections.len(), "{selections:?}");
            for one in &selections {
                assert!(is_interface(&one.interface) && is_name(&one.name) && is_name(&one.namespace), "{one:?}");
                assert!(one.ips.iter().all(|ip| is_address(ip)) && one.interface != INTERFACE, "{one:?}");
            }
        }
        assert!(accepted > 100, "{accepted}");
    }

    #[test]
    fn the_primary_network_has_no_name() {
        let one = parse_primary(r#"{"ips": ["10.0.0.5"], "mac": "02:00:00:00:00:01"}"#).unwrap();
        assert_eq!((one.interface.as_str(), one.ips.len()), ("eth0", 1));
        for invalid in ["", "[]", r#"{"name": "x"}"#, r#"{"interface": "x"}"#, r#"{"default-route": ["1.1.1.1"]}"#] {
            assert!(parse_primary(invalid).is_err(), "{invalid}");
        }
    }

    #[test]
    fn invalid_values_are_refused() {
        let many = ["n"; 17].join(",");
        let cases = [
            ("a/b/c", "not the name"),
            ("a@", "interface \"\" is not valid"),
            ("a@eth0", "used twice"),
            ("a@net2,b", "used twice"),
            ("a@x y", "interface \"x y\" is not valid"),
            ("../a", "namespace"),
            ("a;b", "not the name"),
            (many.as_str(), "17 networks; at most 16"),
            ("[", "not valid"),
            ("[{}]", "[0]: missing field `name`"),
            (r#"[{"name": "a", "nonsense": 1}]"#, "unknown field `nonsense`"),
            (r#"[{"name": "a", "ips": ["10.0.0.1/33"]}]"#, "address \"10.0.0.1/33\""),
            (r#"[{"name": "a", "mac": "02:00"}]"#, "mac \"02:00\""),
            (r#"[{"name": "a", "infiniband-guid": "02:00:00:00:00:01"}]"#, "infiniband-guid"),
            (r#"[{"name": "a", "portMappings": [{"hostPort": 1, "containerPort": 1, "protocol": "x"}]}]"#, "protocol"),
            (
                r#"[{"name": "a", "default-route": ["1.1.1.1"]}, {"name": "b", "default-route": ["1.1.1.2"]}]"#,
                "more than one",
            ),
            (r#"[{"name": "a", "default-route": ["x"]}]"#, "[0]: invalid IP address"),
        ];
        for (value, expected) in cases {
            let error = parse(value, "default").expect_err(value);
            assert!(error.contains(expected), "{value}: {error}");
        }
        assert!(parse(&"x".repeat(VALUE_MAX + 1), "").unwrap_err().contains("longer"));
    }
}
