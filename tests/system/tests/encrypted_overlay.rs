//! An encrypted overlay of two nodes that share an etcd. The kernel needs WireGuard, which that of a development machine may
//! lack: `tests/vm/run encrypted-overlay` runs this in a virtual machine.

use std::time::Duration;

use system_tests::{Node, Wire, wait_until};

/// Identifier of the network, and the port that belongs to it.
const VNI: u32 = 5000;
const PORT: u32 = 61_465;
/// Longest time until a daemon notices what an administrator did, twice as long as documented: an emulated machine is slow.
const RESCAN: Duration = Duration::from_secs(60);

fn run(node: &Node, name: &str) {
    let command = ["demo:1", "httpd", "-f", "-p", "80", "-h", "/www"];
    node.pinion(&[&["run", "-d", "--name", name, "--network", "shop"][..], &command].concat()).ok();
}

/// Waits until a name is resolved in a container, and the page of that pod is there.
#[track_caller]
fn must_fetch(node: &Node, container: &str, name: &str) {
    let script = format!("timeout 2 wget -qO- http://{name}/");
    wait_until(&format!("{container} reaches {name}"), || {
        node.pinion(&["exec", container, "sh", "-c", &script]).stdout.contains("hello from a pod")
    });
}

/// Counts packets on the wire: those of the tunnel, and those that a tunnel without encryption would send, or none at all.
fn count(wire: &Wire) {
    wire.shell(&format!(
        "nft add table bridge wire
         nft 'add chain bridge wire forward {{ type filter hook forward priority 0; }}'
         nft add rule bridge wire forward udp dport {PORT} counter comment encrypted
         nft add rule bridge wire forward udp dport 4789 counter comment plain
         nft add rule bridge wire forward ip daddr 10.128.0.0/9 counter comment plain"
    ));
}

/// Returns how many packets rules with a comment have counted.
fn counted(wire: &Wire, comment: &str) -> u64 {
    let rules = wire.shell("nft list table bridge wire");
    let of_comment = rules.lines().filter(|line| line.contains(&format!("comment \"{comment}\"")));
    let packets = of_comment.map(|line| {
        let count = line.split_once("packets ").and_then(|(_, rest)| rest.split(' ').next()?.parse::<u64>().ok());
        count.unwrap_or_else(|| panic!("no counter: {line}"))
    });
    packets.sum()
}

fn address(node: &Node, pod: &str) -> String {
    let network = node.pinion(&["network", "inspect", "shop"]).json()[0].clone();
    let pods = network["pods"].as_array().expect("pods").clone();
    let endpoint = pods.into_iter().find(|endpoint| endpoint["name"] == pod).expect("the pod");
    endpoint["ips"][0].as_str().expect("an address").to_owned()
}

/// Returns how many ICMP messages the pod has received.
fn received(node: &Node) -> String {
    node.pinion(&["exec", "web", "sh", "-c", "grep ^Icmp: /proc/net/snmp | tail -1 | cut -d' ' -f2"]).ok()
}

fn key(node: &Node) -> String {
    let record = node.run("sh", &["-c", "cat /run/pinion/overlay/*.json"]).ok();
    let peers = record.split_once("\"publicKey\":\"").expect("a key of the other node").1;
    peers.split('"').next().unwrap_or_default().to_owned()
}

#[test]
fn packets_between_nodes_are_encrypted() {
    let mut wire = Wire::start();
    wire.start_etcd();
    let mut nodes = [1, 2].map(|number| wire.start_node(number));
    count(&wire);
    let vni = format!("vni={VNI}");
    nodes[0].pinion(&["network", "create", "-d", "overlay", "-o", "encrypted", "-o", &vni, "shop"]).ok();
    let plain = nodes[1].pinion(&["network", "create", "-d", "overlay", "-o", "encrypted=false", "shop"]);
    assert!(plain.stderr.contains("encrypted"), "{plain:?}");
    run(&nodes[0], "web");
    run(&nodes[1], "db");
    must_fetch(&nodes[0], "web", "db");
    must_fetch(&nodes[1], "db", "web");
    let link = nodes[0].run("ip", &["-d", "link", "show", &format!("pinion.{VNI}")]).ok();
    assert!(link.contains("wireguard") && link.contains("mtu 1440"), "{link}");
    assert!(counted(&wire, "encrypted") > 0);
    let way = nodes[0].pinion(&["network", "trace", "web", &address(&nodes[1], "db")]).ok();
    assert!(way.contains(&format!("tunnel    pinion.{VNI}, WireGuard, to node 192.0.2.2")), "{way}");
    // The node reaches pods of the other one, and itself by the address of its tunnel.
    let own = format!("ip -4 -o addr show dev pinion.{VNI} | sed 's/.* inet //; s,/.*,,'");
    nodes[0].run("sh", &["-c", &format!("busybox ping -c 1 -W 5 $({own})")]).ok();
    nodes[0].run("curl", &["-fsS", "--max-time", "5", &format!("http://{}/", address(&nodes[1], "db"))]).ok();
    // A machine on the wire sends what a pod of the other node could send.
    let before = received(&nodes[0]);
    wire.shell(&format!(
        "ip addr add {0}/32 dev wire; ip route add {1} via 192.0.2.1 src {0}; busybox ping -c 2 -W 1 -I {0} {1} || true",
        address(&nodes[1], "db"),
        address(&nodes[0], "web")
    ));
    assert_eq!(received(&nodes[0]), before, "no pod gets it");

    // Daemons come and go: not even the keys change.
    let before = key(&nodes[1]);
    nodes[0].kill_daemon();
    must_fetch(&nodes[1], "db", "web");
    nodes[0].start_daemon();
    must_fetch(&nodes[0], "web", "db");
    assert_eq!(key(&nodes[1]), before);

    // An administrator deletes the tunnel, and with it the key: the other node learns the new one.
    nodes[0].run("ip", &["link", "del", &format!("pinion.{VNI}")]).ok();
    testbed::wait_until("the other node has the new key", RESCAN, || key(&nodes[1]) != before);
    must_fetch(&nodes[0], "web", "db");
    must_fetch(&nodes[1], "db", "web");
    assert_eq!(counted(&wire, "plain"), 0, "{}", wire.shell("nft list table bridge wire"));

    for node in &nodes {
        node.remove_all_pods();
        node.pinion(&["network", "rm", "shop"]).ok();
    }
    for node in nodes {
        let left = node.run("sh", &["-c", "ip -o link; ip route; nft list ruleset; ls /run/pinion/overlay"]).ok();
        assert!(["pinion.", "10.128", "overlay_", ".json"].iter().all(|name| !left.contains(name)), "{left}");
        node.end();
    }
}
