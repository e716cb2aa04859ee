//! Networks that people create by name: `pinion network`, and containers that join them.

use serde_json::Value;
use system_tests::{Node, Outcome, wait_until};

fn node() -> Node {
    let node = Node::start();
    node.load_image();
    // Without a server, names that no pod has are an error at once.
    let script =
        format!("echo options timeout:1 > {0}/r && mount --bind {0}/r /etc/resolv.conf", node.dir.path().display());
    node.run("sh", &["-c", &script]).ok();
    node
}

fn run<'a>(node: &Node, name: &'a str, options: &[&'a str]) -> Outcome {
    node.pinion(&[&["run", "-d", "--name", name], options, &["demo:1", "sleep", "1000"]].concat())
}

fn exec(node: &Node, container: &str, script: &str) -> Outcome {
    node.pinion(&["exec", container, "sh", "-c", script])
}

fn network(node: &Node, name: &str) -> Value {
    node.pinion(&["network", "inspect", name]).json()[0].clone()
}

/// Returns the first address of a pod in a network.
fn address(node: &Node, network_name: &str, pod: &str) -> String {
    let network = network(node, network_name);
    let pods = network["pods"].as_array().expect("pods");
    let endpoint = pods.iter().find(|endpoint| endpoint["name"] == pod).unwrap_or_else(|| panic!("{pod}: {network}"));
    endpoint["ips"][0].as_str().expect("an address").to_owned()
}

fn links(node: &Node) -> String {
    node.run("sh", &["-c", "ip -o link | cut -d: -f2"]).stdout
}

#[test]
fn containers_of_a_network_find_each_other_by_name() {
    let mut node = node();
    let id = node.pinion(&["network", "create", "--label", "team=web", "shop"]).ok();
    assert_eq!((id.len(), links(&node).contains("br-")), (64, false), "{id}");
    node.pinion(&["network", "create", "--subnet", "10.99.0.0/24", "--ipv6", "other"]).ok();
    let container = run(&node, "web", &["--network", "shop:alias=www"]).ok();
    run(&node, "db", &["--network", "shop"]).ok();
    run(&node, "far", &["--network", "other:ip=10.99.0.77,mac=02:00:00:00:00:77"]).ok();
    let (web, db) = (address(&node, "shop", "web"), address(&node, "shop", "db"));
    assert!(web.starts_with("172.17.") && db.starts_with("172.17.") && web != db, "{web} {db}");
    assert_eq!(address(&node, "other", "far"), "10.99.0.77");

    let resolver = exec(&node, "db", "cat /etc/resolv.conf").ok();
    assert!(resolver == "nameserver 127.0.0.11\noptions timeout:1 ndots:0", "{resolver}");
    let pod = node.pinion(&["pods", "-q"]).ok().lines().last().expect("pods").to_owned();
    for name in ["web", "www", "WEB", "web.shop", &pod[..12], &container[..12]] {
        let found = exec(&node, "db", &format!("ping -c 1 -w 5 {name}"));
        assert!(found.code == Some(0) && found.stdout.contains(&web), "{name}: {found:?}");
    }
    let reverse = exec(&node, "db", &format!("nslookup {web}")).ok();
    assert!(reverse.contains("web.shop"), "{reverse}");
    // Another network: neither names nor packets.
    assert_ne!(exec(&node, "far", "nslookup web").code, Some(0));
    assert_ne!(exec(&node, "far", &format!("ping -c 1 -W 1 {web}")).code, Some(0));
    let far = exec(&node, "far", "ip address show eth0").ok();
    assert!(far.contains("10.99.0.77/24") && far.contains("02:00:00:00:00:77") && far.contains("inet6 fd"), "{far}");

    // The way of a packet: to a pod of this network, to one of another network, to a port without a server.
    let reached = node.pinion(&["network", "trace", "db", "web"]);
    let expected = ["in pod db\n", "on the node\n", "in pod web\n", "  delivered\n", " answered after "];
    let has_all = expected.iter().all(|text| format!("{}\n", reached.stdout).contains(text));
    assert!(reached.code == Some(0) && has_all, "{reached:?}");
    let lost = node.pinion(&["network", "trace", "--timeout", "1", "far", &format!("{web}:80")]);
    assert!(lost.code == Some(1) && lost.stdout.contains("; the packet ends on the node: rule "), "{lost:?}");
    let refused = node.pinion(&["--json", "network", "trace", "db", &format!("{web}:80/tcp")]);
    let trace: Value = serde_json::from_str(&refused.stdout).expect("JSON");
    assert!(refused.code == Some(1) && trace["answer"] == "refused", "{refused:?}");
    let unknown = node.pinion(&["network", "trace", "db", "nobody"]);
    assert!(unknown.code == Some(1) && unknown.stderr.contains("no pod \"nobody\""), "{unknown:?}");
    assert!(!node.run("nft", &["list", "tables"]).stdout.contains("pinion-trace"));

    // Nothing of this depends on the process of the daemon.
    node.kill_daemon();
    node.start_daemon();
    wait_until("names are resolved again", || exec(&node, "db", "ping -c 1 -w 2 www").code == Some(0));
    assert_eq!(address(&node, "shop", "web"), web);

    let used = node.pinion(&["network", "rm", "shop"]);
    assert!(used.code == Some(1) && used.stderr.contains("in use by pods db, web"), "{used:?}");
    node.pinion(&["rm", "-f", "web"]).ok();
    assert_ne!(exec(&node, "db", "nslookup web").code, Some(0), "a name of a pod that is gone");
    node.remove_all_pods();
    assert_eq!(node.pinion(&["network", "rm", "shop"]).ok(), "shop");
    assert_eq!(node.pinion(&["network", "prune"]).ok(), "other");
    assert_eq!(node.pinion(&["--json", "network", "ls"]).json().as_array().map(Vec::len), Some(3));
    assert!(!links(&node).contains("br-"), "{}", links(&node));
    node.end();
}

#[test]
fn requests_that_are_not_valid_are_refused() {
    let node = node();
    node.pinion(&["network", "create", "--subnet", "10.99.0.0/24", "--aux-address", "router=10.99.0.9", "net"]).ok();
    let create = |arguments: &str| {
        let all: Vec<&str> = ["network", "create"].into_iter().chain(arguments.split_whitespace()).collect();
        node.pinion(&all)
    };
    for (arguments, reason) in [
        ("net", "exists already"),
        ("host", "a meaning of its own"),
        ("../x", "the name is not valid"),
        ("-d host x", "--network host"),
        ("-d overlay x", "overlay"),
        ("-d nonsense x", "use one of bridge, macvlan"),
        ("--subnet 10.99.0.128/25 x", "overlaps with 10.99.0.0/24"),
        ("--subnet 10.85.1.0/24 x", "overlaps with 10.85.0.0/16"),
        ("--subnet 10.98.0.1/24 x", "host bits"),
        ("--subnet 10.98.0.0/31 x", "too small"),
        ("--subnet 127.0.0.0/24 x", "cannot have pods"),
        ("--subnet 10.98.0.0/24 --gateway 10.97.0.1 x", "not an address of a host in subnet"),
        ("--subnet 10.98.0.0/24 --ip-range 10.97.0.0/25 x", "not a part of subnet"),
        ("--subnet 10.98.0.0/24 --aux-address a=10.98.0.255 x", "not an address of a host"),
        ("--gateway 10.98.0.1 x", "--gateway without a --subnet"),
        ("-o nonsense=1 x", "com.docker.network.bridge.name"),
        ("-o com.docker.network.bridge.name=pinion0 x", "exists already"),
        ("-o mtu=1 x", "68 to 65535"),
        ("-d macvlan x", "-o parent=LINK"),
        ("-d macvlan -o parent=nosuch0 x", "not a link of this node"),
        ("-d ipvlan -o parent=lo -o ipvlan_mode=l2 x", "not a valid name"),
        ("-d macvlan -o parent=up0 -o macvlan_mode=l2 x", "use one of bridge, private"),
    ] {
        let refused = create(arguments);
        assert!(refused.code != Some(0) && refused.stderr.contains(reason), "{arguments}: {refused:?}");
    }
    run(&node, "first", &["--network", "net", "--ip", "10.99.0.5"]).ok();
    for (options, reason) in [
        (&["--network", "missing"][..], "does not exist"),
        (&["--network", "net", "--network", "host"], "cannot be combined"),
        (&["--network", "net", "--network", "net"], "requested twice"),
        (&["--ip", "10.99.0.6"], "require a network"),
        (&["--network", "net", "--ip", "10.98.0.6"], "not in its subnet 10.99.0.0/24"),
        (&["--network", "net", "--ip", "10.99.0.1"], "is reserved"),
        (&["--network", "net", "--ip", "10.99.0.9"], "is reserved"),
        (&["--network", "net", "--ip", "10.99.0.5"], "in use by another pod"),
        (&["--network", "net", "--mac-address", "01:00:00:00:00:01"], "MAC address"),
        (&["--network", "net:colour=1"], "is unknown; use ip"),
        (&["--network", "container:first"], "use --pod NAME"),
        (&["--network", "none", "-p", "8080:80"], "cannot be mapped"),
        (&["--add-host", "a b:1.2.3.4"], "not a host name"),
        (&["--add-host", "a:b"], "neither an IP address"),
    ] {
        let refused = run(&node, "refused", options);
        assert!(refused.code != Some(0) && refused.stderr.contains(reason), "{options:?}: {refused:?}");
    }
    let missing = node.pinion(&["network", "rm", "missing"]);
    assert!(missing.code == Some(1) && missing.stderr.contains("pinion network ls"), "{missing:?}");
    node.pinion(&["network", "rm", "-f", "missing"]).ok();
    assert_eq!(node.pinion(&["pods", "-q"]).ok().lines().count(), 1, "a refused pod was not removed");
    node.remove_all_pods();
    node.end();
}

#[test]
fn a_pod_has_several_networks_and_joins_and_leaves_them_while_it_runs() {
    let mut node = node();
    for (name, subnet) in [("front", "10.96.0.0/24"), ("back", "10.97.0.0/24")] {
        node.pinion(&["network", "create", "--subnet", subnet, name]).ok();
    }
    let hosts = ["--add-host", "gate:host-gateway", "--add-host", "six=[fd00::9]", "--dns", "127.0.0.1"];
    run(&node, "both", &[&["--network", "front", "--network", "back:alias=b", "-p", "8080:80"][..], &hosts].concat())
        .ok();
    run(&node, "plain", &["--dns-search", "example.test"]).ok();
    run(&node, "alone", &["--network", "none"]).ok();
    let routes = exec(&node, "both", "ip route; cat /etc/hosts").ok();
    assert!(routes.contains("default via 10.96.0.1 dev eth0") && routes.contains("10.97.0.0/24 dev eth1"), "{routes}");
    for line in ["10.96.0.1\tgate", "fd00::9\tsix", "10.97.0.2\tboth"] {
        assert!(routes.contains(line), "{line}: {routes}");
    }
    assert_eq!(exec(&node, "alone", "ip -o link | cut -d: -f2").ok().trim(), "lo");
    let plain = exec(&node, "plain", "cat /etc/resolv.conf").ok();
    assert!(plain.contains("search example.test") && !plain.contains("127.0.0.11"), "{plain}");
    // A published port of the first network; the node has no other address than loopback.
    node.pinion(&["exec", "both", "sh", "-c", "httpd -p 80 -h /www"]).ok();
    wait_until("the published port responds", || {
        node.run("curl", &["-fsS", "-m", "2", "http://127.0.0.1:8080/"]).stdout.contains("hello from a pod")
    });
    let taken = run(&node, "taken", &["--network", "back", "-p", "8080:80"]);
    assert!(taken.code == Some(125) && taken.stderr.contains("8080"), "{taken:?}");

    // A pod of the default network joins one, and is found there.
    assert_ne!(exec(&node, "both", "nslookup plain").code, Some(0));
    // A pod whose resolver cannot be started does not join.
    exec(&node, "plain", "httpd -p 53").ok();
    let connect = ["network", "connect", "--ip", "10.97.0.40", "--alias", "db", "back", "plain"];
    let refused = node.pinion(&connect);
    assert!(refused.code == Some(1) && refused.stderr.contains("127.0.0.11:53"), "{refused:?}");
    assert!(!exec(&node, "plain", "killall httpd; ip -o link").ok().contains("eth1"));
    wait_until("the port is free, and the pod joins", || node.pinion(&connect).code == Some(0));
    assert!(exec(&node, "both", "nslookup db && ping -c 1 -w 5 plain").ok().contains("10.97.0.40"));
    assert!(exec(&node, "plain", "ping -c 1 -w 5 both").ok().contains("10.97.0.2"));
    let again = node.pinion(&["network", "connect", "back", "plain"]);
    assert!(again.stderr.contains("connected to it already"), "{again:?}");
    for (pod, reason) in [("alone", "--network none"), ("nothing", "no pod or container")] {
        let refused = node.pinion(&["network", "connect", "back", pod]);
        assert!(refused.code == Some(1) && refused.stderr.contains(reason), "{refused:?}");
    }
    node.kill_daemon();
    node.start_daemon();
    wait_until("names are resolved again", || exec(&node, "both", "nslookup db").code == Some(0));
    node.pinion(&["network", "disconnect", "back", "plain"]).ok();
    assert!(!exec(&node, "plain", "ip -o link").ok().contains("eth1"));
    assert_ne!(exec(&node, "both", "nslookup db").code, Some(0));
    let not_connected = node.pinion(&["network", "disconnect", "back", "plain"]);
    assert!(not_connected.stderr.contains("is not connected"), "{not_connected:?}");
    node.pinion(&["network", "disconnect", "-f", "back", "plain"]).ok();
    // The default route follows when the first network is left.
    node.pinion(&["network", "disconnect", "front", "both"]).ok();
    let routes = exec(&node, "both", "ip route").ok();
    assert!(routes.contains("default via 10.97.0.1 dev eth1"), "{routes}");
    let listed = node.pinion(&["--json", "pods"]).json().to_string();
    assert!(listed.contains("10.97.0.2") && !listed.contains("10.96.0.2"), "{listed}");
    node.remove_all_pods();
    assert_eq!(node.pinion(&["network", "prune"]).ok().lines().count(), 2);
    node.end();
}
