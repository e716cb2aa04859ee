//! Overlays that people create by name, on three nodes that share an etcd.

use serde_json::Value;
use system_tests::{Node, Outcome, Wire, wait_until};

fn node(wire: &Wire, number: u8) -> Node {
    let node = wire.start_node(number);
    let script =
        format!("echo options timeout:1 > {0}/r && mount --bind {0}/r /etc/resolv.conf", node.dir.path().display());
    node.run("sh", &["-c", &script]).ok();
    node
}

fn run(node: &Node, name: &str, options: &[&str]) -> Outcome {
    let command = ["demo:1", "httpd", "-f", "-p", "80", "-h", "/www"];
    node.pinion(&[&["run", "-d", "--name", name, "--network"], options, &command].concat())
}

fn exec(node: &Node, container: &str, script: &str) -> Outcome {
    node.pinion(&["exec", container, "sh", "-c", script])
}

fn network(node: &Node, name: &str) -> Value {
    node.pinion(&["network", "inspect", name]).json()[0].clone()
}

fn address(node: &Node, pod: &str) -> String {
    let network = network(node, "shop");
    let pods = network["pods"].as_array().expect("pods");
    let endpoint = pods.iter().find(|endpoint| endpoint["name"] == pod).unwrap_or_else(|| panic!("{pod}: {network}"));
    endpoint["ips"][0].as_str().expect("an address").to_owned()
}

/// Waits until a name is resolved in a container, and the page of that pod is there.
#[track_caller]
fn must_fetch(node: &Node, container: &str, name: &str) {
    wait_until(&format!("{container} reaches {name}"), || {
        exec(node, container, &format!("timeout 2 wget -qO- http://{name}/")).stdout.contains("hello from a pod")
    });
}

fn resolves(node: &Node, container: &str, name: &str) -> bool {
    exec(node, container, &format!("nslookup {name}")).code == Some(0)
}

#[test]
fn nodes_share_networks_and_names() {
    let mut wire = Wire::start();
    wire.start_etcd();
    let mut nodes = [1, 2, 3].map(|number| node(&wire, number));
    let id = nodes[0].pinion(&["network", "create", "-d", "overlay", "shop"]).ok();
    assert_eq!(nodes[1].pinion(&["network", "create", "-d", "overlay", "--label", "a=b", "shop"]).ok(), id);
    refused(&nodes);
    run(&nodes[0], "web", &["shop:alias=www"]).ok();
    run(&nodes[1], "db", &["shop", "-p", "8080:80"]).ok();
    // The third node has not created it.
    run(&nodes[2], "cache", &["shop"]).ok();
    assert_eq!(network(&nodes[2], "shop")["id"], id);
    let addresses = [address(&nodes[0], "web"), address(&nodes[1], "db"), address(&nodes[2], "cache")];
    assert!(addresses.iter().all(|address| address.starts_with("10.128.")), "{addresses:?}");
    for (node, container) in nodes.iter().zip(["web", "db", "cache"]) {
        for name in ["web", "www", "WEB.shop", "db", "cache"] {
            must_fetch(node, container, name);
        }
    }
    let reverse = exec(&nodes[2], "cache", &format!("nslookup {}", addresses[0])).ok();
    assert!(reverse.contains("web.shop"), "{reverse}");
    let published = wire.shell("curl -fs --max-time 5 http://192.0.2.2:8080/");
    assert!(published.contains("hello from a pod"), "{published}");
    survives(&mut wire, &mut nodes);
    is_removed(&wire, nodes);
}

/// What the nodes would not agree on is refused, and changes nothing.
fn refused(nodes: &[Node; 3]) {
    for (arguments, reason) in [
        ("--subnet 10.9.0.0/16 shop", "another node has created it with subnet"),
        ("-o vni=7 shop", "another node has created it with vni"),
        ("--internal other", "cannot be internal"),
        ("-o encrypted=7 other", "neither true nor false"),
        ("--subnet 10.9.0.0/16 --gateway 10.9.0.7 other", "each node has a part"),
        ("--subnet 10.9.0.0/28 other", "use one of 26 bits or fewer"),
        ("--subnet 192.0.2.0/25 other", "contains 192.0.2.3, an address of this node"),
        ("-o vni=0 other", "not a number"),
    ] {
        let all: Vec<&str> =
            ["network", "create", "-d", "overlay"].into_iter().chain(arguments.split_whitespace()).collect();
        let outcome = nodes[2].pinion(&all);
        assert!(outcome.code != Some(0) && outcome.stderr.contains(reason), "{arguments}: {outcome:?}");
    }
    if nodes[2].run("ip", &["link", "add", "probe", "type", "wireguard"]).code != Some(0) {
        let encrypted = nodes[2].pinion(&["network", "create", "-d", "overlay", "-o", "encrypted", "other"]);
        assert!(encrypted.stderr.contains("this kernel has no wireguard"), "{encrypted:?}");
    }
    let networks = nodes[2].pinion(&["network", "ls"]).ok();
    assert!(!networks.contains("overlay"), "{networks}");
    let missing = run(&nodes[2], "web", &["unknown"]);
    assert!(missing.code != Some(0) && missing.stderr.contains("does not exist"), "{missing:?}");
}

/// Daemons and etcd come and go.
fn survives(wire: &mut Wire, nodes: &mut [Node; 3]) {
    let before = address(&nodes[0], "web");
    nodes[0].kill_daemon();
    nodes[0].reap_daemon();
    must_fetch(&nodes[1], "db", "www");
    nodes[0].start_daemon();
    must_fetch(&nodes[0], "web", "cache");
    assert_eq!(address(&nodes[0], "web"), before);

    wire.kill_etcd();
    must_fetch(&nodes[2], "cache", "www");
    run(&nodes[1], "late", &["shop"]).ok();
    must_fetch(&nodes[1], "late", "web");
    wire.start_etcd();
    must_fetch(&nodes[0], "web", "late");
    nodes[1].pinion(&["rm", "-f", "late"]).ok();
    wait_until("the name of a pod that is gone is unknown", || !resolves(&nodes[0], "web", "late"));
}

/// A node leaves the network, then the others.
fn is_removed(wire: &Wire, nodes: [Node; 3]) {
    let used = nodes[0].pinion(&["network", "rm", "shop"]);
    assert!(used.code == Some(1) && used.stderr.contains("in use by pods web"), "{used:?}");
    nodes[0].remove_all_pods();
    nodes[0].pinion(&["network", "rm", "shop"]).ok();
    wait_until("its names are unknown", || !resolves(&nodes[1], "db", "web"));
    must_fetch(&nodes[1], "db", "cache");
    assert!(wire.keys().contains(&"/pinion/overlay/networks/shop".to_owned()), "other nodes have it");
    for node in &nodes[1..] {
        node.remove_all_pods();
        node.pinion(&["network", "rm", "shop"]).ok();
    }
    assert_eq!(wire.keys(), Vec::<String>::new());
    for node in nodes {
        let left = node.run("sh", &["-c", "ip -o link; ip route; nft list ruleset; ls /run/pinion/overlay"]).ok();
        assert!(["pinion.", "pinbr.", "10.128", "overlay_", ".json"].iter().all(|name| !left.contains(name)), "{left}");
        node.end();
    }
}
