//! Runs each type and the reference plugin of the same name on nodes of their own, and compares results, links, addresses,
//! routes, rules and sysctls field by field; then each checks and deletes what the other added.
//! `PINION_TEST_CNI_BIN=<directory> cargo test -p cni-plugins --features reference-plugins --test reference`

#[path = "../node/mod.rs"]
mod node;
mod snapshot;

use std::path::{Path, PathBuf};

use node::{Chain, Node, own_programs};
use serde_json::{Value, json};
use testbed::{Namespaces, on_a_node};

fn reference() -> PathBuf {
    std::env::var_os("PINION_TEST_CNI_BIN").expect("PINION_TEST_CNI_BIN is set").into()
}

/// What is compared of a chain on one node.
struct Life {
    results: Vec<Value>,
    added: Value,
    deleted: Value,
}

fn clean(result: &Value, node: &Node) -> Value {
    let text = result.to_string().replace(&node.pod_path(), "<pod>");
    serde_json::from_str(&snapshot::plain(&text)).expect("JSON")
}

/// Reports whether the reference plugins refuse the result of a chain that they ran themselves.
fn is_refused(chain: &Chain) -> bool {
    let has = |key: &str, value: Value| chain.plugins.iter().any(|plugin| plugin[key] == value);
    has("type", json!("sbr"))
        || has("useInterfaceNetwork", json!(true))
        || chain.plugins[0]["ipam"]["routes"][1]["table"] == 300
}

/// Adds, checks and deletes; `Err` is the message of a failed `ADD`.
fn live(name: &str, setup: &str, chain: &Chain, add: &Path, delete: &Path) -> Result<Life, node::Failure> {
    let node = Node::new(name);
    if !setup.is_empty() {
        node.shell(setup);
    }
    let results = chain.add(&node, add)?;
    let last = results.last().expect("a result").clone();
    let added = snapshot::take(&node);
    if chain.version >= "0.4.0" {
        let ours = own_programs();
        chain.run(&node, &ours, "CHECK", &last).unwrap_or_else(|e| panic!("{name}: CHECK by our programs: {e:?}"));
        // The reference plugins refuse some of their own results: they look for routes in the main table only.
        if add == ours && chain.run(&node, &reference(), "CHECK", &last).is_err() && !is_refused(chain) {
            panic!("{name}: CHECK by the reference plugins");
        }
    }
    for attempt in ["first", "second"] {
        // A second DEL of these types fails in the reference plugin: the interface is not there any longer.
        let has = |kind: &str| chain.plugins.iter().any(|plugin| plugin["type"] == kind);
        let once = has("vrf") || has("host-device") && delete != own_programs();
        if attempt == "first" || !once {
            chain.run(&node, delete, "DEL", &last).unwrap_or_else(|e| panic!("{name}: {attempt} DEL: {e:?}"));
        }
    }
    let deleted = snapshot::take(&node);
    let results = results.iter().map(|result| clean(result, &node)).collect();
    Ok(Life { results, added, deleted })
}

/// Compares a chain; returns the differences.
fn compare(setup: &str, chain: &Chain) -> Vec<String> {
    let (ours, theirs) = (own_programs(), reference());
    let expected = live("theirs", setup, chain, &theirs, &theirs);
    let actual = live("ours", setup, chain, &ours, &ours);
    let (expected, actual) = match (expected, actual) {
        (Ok(expected), Ok(actual)) => (expected, actual),
        // This kernel lacks something: ours must name it.
        (Err(_), Err(failure)) if failure.code == 103 => {
            println!("both fail here: {}", failure.message);
            return Vec::new();
        }
        (expected, actual) => {
            return vec![format!("theirs: {:?}, ours: {:?}", expected.map(|l| l.results), actual.map(|l| l.results))];
        }
    };
    let mut found = Vec::new();
    snapshot::differences("results", &json!(expected.results), &json!(actual.results), &mut found);
    snapshot::differences("added", &expected.added, &actual.added, &mut found);
    snapshot::differences("deleted", &expected.deleted, &actual.deleted, &mut found);
    let mixed = live("mixed", setup, chain, &ours, &theirs).expect("ADD succeeded before");
    snapshot::differences("added by us, deleted by them", &expected.deleted, &mixed.deleted, &mut found);
    let mixed = live("mixed2", setup, chain, &theirs, &ours).expect("ADD succeeded before");
    snapshot::differences("added by them, deleted by us", &expected.deleted, &mixed.deleted, &mut found);
    found
}

#[track_caller]
fn assert_same(setup: &str, chain: &Chain) {
    let found = compare(setup, chain);
    assert!(found.is_empty(), "{}: {} differences:\n{}", json!(chain.plugins), found.len(), found.join("\n"));
}

fn host_local(subnets: &[&str]) -> Value {
    let ranges: Vec<Value> = subnets.iter().map(|subnet| json!([{"subnet": subnet}])).collect();
    json!({"type": "host-local", "ranges": ranges, "dataDir": "DIRECTORY/leases",
        "routes": subnets.iter().map(|s| json!({"dst": if s.contains(':') { "::/0" } else { "0.0.0.0/0" }})).collect::<Vec<_>>()})
}

fn four() -> Value {
    host_local(&["10.1.0.0/24"])
}

fn both() -> Value {
    host_local(&["10.1.0.0/24", "fd00:1::/64"])
}

#[test]
fn loopback() {
    on_a_node(Namespaces::NETWORK, || {
        // The reference plugin's results of older versions lack a required field, the version of each address.
        for version in ["1.0.0", "1.1.0"] {
            let chain = Chain { version, ..Chain::new(vec![json!({"type": "loopback"})]) };
            let (ours, theirs) = (own_programs(), reference());
            let expected = live(&format!("theirs{version}"), "", &chain, &theirs, &theirs).unwrap();
            let actual = live(&format!("ours{version}"), "", &chain, &ours, &ours).unwrap();
            assert_eq!(expected.results, actual.results);
            let mut found = Vec::new();
            snapshot::differences("", &expected.added, &actual.added, &mut found);
            snapshot::differences("", &expected.deleted, &actual.deleted, &mut found);
            assert!(found.is_empty(), "{found:#?}");
        }
    });
}

macro_rules! same {
    ($($(#[$doc:meta])* $name:ident: $setup:expr, $chain:expr;)*) => {$(
        #[test]
        fn $name() {
            on_a_node(Namespaces::NETWORK, || assert_same($setup, &$chain));
        }
    )*};
}

same! {
    macvlan: "", Chain::new(vec![json!({"type": "macvlan", "master": "up0", "ipam": four()})]);
    macvlan_dual: "", Chain::new(vec![json!({"type": "macvlan", "master": "up0", "mode": "private", "mtu": 1400, "ipam": both()})]);
    macvlan_layer_2: "", Chain { arguments: "IgnoreUnknown=1;MAC=02:00:00:00:00:77",
        ..Chain::new(vec![json!({"type": "macvlan", "master": "up0", "mode": "vepa", "bcqueuelen": 2000})]) };
    macvlan_default_route: "ip route add default via 192.0.2.9", Chain { version: "0.4.0", runtime: json!({"mac": "02:00:00:00:00:78"}),
        ..Chain::new(vec![json!({"type": "macvlan", "ipam": four(), "capabilities": {"mac": true}, "dns": {"nameservers": ["192.0.2.5"]}})]) };
    macvlan_passthru: "", Chain { version: "0.3.1", ..Chain::new(vec![json!({"type": "macvlan", "master": "up1", "mode": "passthru", "ipam": four()})]) };
    ipvlan: "", Chain::new(vec![json!({"type": "ipvlan", "master": "up0", "ipam": four()})]);
    ipvlan_l3: "", Chain::new(vec![json!({"type": "ipvlan", "master": "up0", "mode": "l3s", "mtu": 1400, "ipam": both()})]);
    vlan: "", Chain::new(vec![json!({"type": "vlan", "master": "up0", "vlanId": 100, "ipam": four()})]);
    vlan_layer_2: "", Chain::new(vec![json!({"type": "vlan", "master": "up0", "vlanId": 7, "mtu": 1400})]);
    dummy: "", Chain::new(vec![json!({"type": "dummy", "ipam": both()})]);
    ptp: "", Chain::new(vec![json!({"type": "ptp", "ipam": four()})]);
    ptp_dual: "", Chain { version: "0.4.0", ..Chain::new(vec![json!({"type": "ptp", "mtu": 1400, "ipMasq": true, "ipam": both(), "dns": {"search": ["a.b"]}})]) };
    host_device: "", Chain::new(vec![json!({"type": "host-device", "device": "up0", "ipam": four()})]);
    host_device_mac: "", Chain::new(vec![json!({"type": "host-device", "hwaddr": "02:00:00:00:00:11"})]);
    host_device_network: "ip route add 198.51.100.0/24 via 192.0.2.9; ip route add 203.0.113.0/24 dev up0 table 77; ip rule add from 192.0.2.1 table 77",
        Chain::new(vec![json!({"type": "host-device", "device": "up0", "useInterfaceNetwork": true})]);
    tap: "", Chain::new(vec![json!({"type": "tap", "mtu": 1400, "ipam": four()})]);
    tap_owner: "", Chain::new(vec![json!({"type": "tap", "owner": 0, "group": 0, "multiQueue": true})]);
    statically: "", Chain::new(vec![json!({"type": "macvlan", "master": "up0", "ipam": {"type": "static",
        "addresses": [{"address": "10.9.0.5/24", "gateway": "10.9.0.254"}, {"address": "fd00:9::5/64"}],
        "routes": [{"dst": "0.0.0.0/0"}, {"dst": "198.51.100.0/24", "gw": "10.9.0.7", "priority": 5, "table": 300}],
        "dns": {"nameservers": ["10.9.0.53"], "domain": "x.y"}}})]);
    statically_by_engine: "", Chain { runtime: json!({"ips": ["10.9.0.6/24"]}),
        ..Chain::new(vec![json!({"type": "ptp", "capabilities": {"ips": true}, "ipam": {"type": "host-local", "dataDir": "DIRECTORY/l",
            "ranges": [[{"subnet": "10.9.0.0/24", "rangeStart": "10.9.0.3", "rangeEnd": "10.9.0.9", "gateway": "10.9.0.4"}]]}})]) };
    bridge: "", Chain::new(vec![json!({"type": "bridge", "bridge": "br5", "isGateway": true, "ipam": four()})]);
    bridge_layer_2: "", Chain::new(vec![json!({"type": "bridge", "bridge": "br5", "mtu": 1400, "hairpinMode": true})]);
    bridge_down: "", Chain::new(vec![json!({"type": "bridge", "bridge": "br5", "disableContainerInterface": true, "promiscMode": true})]);
    bridge_full: "", Chain { version: "0.4.0", runtime: json!({"mac": "02:00:00:00:00:79"}), ..Chain::new(vec![json!({"type": "bridge", "bridge": "br5",
        "isDefaultGateway": true, "ipMasq": true, "mtu": 1400, "hairpinMode": true, "portIsolation": true, "macspoofchk": true,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.1.0.0/24"}], [{"subnet": "fd00:1::/64"}]], "dataDir": "DIRECTORY/l"}})]) };
    bridge_force: "ip link add br5 type bridge; ip addr add 10.7.0.1/24 dev br5", Chain::new(vec![json!({"type": "bridge", "bridge": "br5",
        "isGateway": true, "forceAddress": true, "enabledad": true, "ipam": both()})]);
    bridge_vlan: "", Chain::new(vec![json!({"type": "bridge", "bridge": "br5", "isGateway": true, "vlan": 100, "ipam": four()})]);
    bridge_trunk: "", Chain::new(vec![json!({"type": "bridge", "bridge": "br5", "vlanTrunk": [{"minID": 10, "maxID": 12}, {"id": 20}]})]);
    bridge_default_vlan: "", Chain::new(vec![json!({"type": "bridge", "bridge": "br5", "vlan": 100, "preserveDefaultVlan": true})]);
    tuning: "", Chain::new(vec![json!({"type": "macvlan", "master": "up0", "ipam": four()}), json!({"type": "tuning", "dataDir": "DIRECTORY/t",
        "sysctl": {"net.core.somaxconn": "77", "net.ipv4.conf.IFNAME.arp_filter": "1"}, "mtu": 1300, "mac": "02:00:00:00:00:80",
        "promisc": true, "allmulti": true, "txQLen": 500})]);
    bandwidth: "", Chain { runtime: json!({"bandwidth": {"ingressRate": 8_000_000, "ingressBurst": 640_000, "egressRate": 16_000_000, "egressBurst": 1_280_000}}),
        ..Chain::new(vec![json!({"type": "ptp", "ipam": four()}), json!({"type": "bandwidth", "capabilities": {"bandwidth": true}})]) };
    portmap: "", Chain { runtime: json!({"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"},
            {"hostPort": 8053, "containerPort": 53, "protocol": "udp", "hostIP": "192.0.2.1"}, {"hostPort": 9, "containerPort": 9, "protocol": "sctp"},
            {"hostPort": 81, "containerPort": 80, "protocol": "tcp", "hostIP": "::1"}]}),
        ..Chain::new(vec![json!({"type": "ptp", "ipam": both()}), json!({"type": "portmap", "capabilities": {"portMappings": true}})]) };
    portmap_masquerade_all: "", Chain { version: "0.4.0", runtime: json!({"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]}),
        ..Chain::new(vec![json!({"type": "ptp", "ipam": four()}), json!({"type": "portmap", "masqAll": true, "capabilities": {"portMappings": true}})]) };
    sbr: "", Chain::new(vec![json!({"type": "ptp", "ipam": four()}), json!({"type": "sbr"})]);
    sbr_dual: "", Chain::new(vec![json!({"type": "macvlan", "master": "up0", "ipam": both()}), json!({"type": "sbr"})]);
    sbr_table: "", Chain::new(vec![json!({"type": "macvlan", "master": "up0", "ipam": four()}), json!({"type": "sbr", "table": 5000})]);
    sbr_hints: "", Chain::new(vec![json!({"type": "macvlan", "master": "up0", "ipam": four()}), json!({"type": "sbr", "addSourceHints": true, "gateways": ["10.1.0.9"]})]);
    vrf: "", Chain::new(vec![json!({"type": "macvlan", "master": "up0", "ipam": both()}), json!({"type": "vrf", "vrfname": "blue"})]);
}
