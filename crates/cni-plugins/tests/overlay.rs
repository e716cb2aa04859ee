//! Pods of several nodes: `overlay` with nodes from the configuration, and `flannel`. Each node is a network namespace.

mod node;

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    thread,
    time::Duration,
};

use netns::Namespace;
use node::{Chain, Node, own_programs};
use serde_json::{Value, json};
use testbed::{Namespaces, on_a_node, shell};

const PATIENCE: Duration = Duration::from_secs(5);

fn inside<T: Send + 'static>(name: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
    let namespace = Namespace::open(&Path::new("/run/netns").join(name)).expect("a namespace");
    namespace.enter(work).expect("enter")
}

/// Creates nodes `n1` and `n2` with the addresses 192.0.2.1 and 192.0.2.2 on one wire.
fn nodes() -> [Node; 2] {
    shell("ip link add wire type bridge; ip link set wire up");
    [1, 2].map(|n| {
        let node = Node::new(&format!("n{n}"));
        node.shell(&format!("ip link set up1 netns {}; ip addr flush dev up0", std::process::id()));
        shell(&format!("ip link set up1 name w{n} up master wire"));
        node.shell(&format!("ip link set up0 address 02:00:00:00:01:0{n}; ip addr add 192.0.2.{n}/24 dev up0"));
        node
    })
}

/// The same configuration on all nodes.
fn overlay() -> Value {
    json!({"type": "overlay", "vni": 7, "network": ["10.244.0.0/16", "fd44::/48"], "stateDir": "DIRECTORY/overlay",
        "nodes": {"192.0.2.1": ["10.244.1.0/24", "fd44:0:0:1::/64"], "192.0.2.2": ["10.244.2.0/24", "fd44:0:0:2::/64"]},
        "ipam": {"dataDir": "DIRECTORY/leases"}})
}

fn serve(name: &str, address: &str) {
    let address: SocketAddr = address.parse().expect("an address");
    let listener = inside(name, move || TcpListener::bind(address).expect("bind"));
    thread::spawn(move || {
        for client in listener.incoming() {
            let mut client = client.expect("accept");
            let peer = client.peer_addr().expect("peer").ip();
            write!(client, "{peer} {}", "x".repeat(20_000)).expect("response");
        }
    });
}

/// Connects from a namespace; returns the client's address that the server saw.
fn request(from: &str, to: &str) -> Option<String> {
    let to: SocketAddr = to.parse().expect("an address");
    inside(from, move || {
        let mut stream = TcpStream::connect_timeout(&to, PATIENCE).ok()?;
        let mut text = String::new();
        stream.set_read_timeout(Some(PATIENCE)).ok()?;
        stream.read_to_string(&mut text).ok()?;
        (text.len() > 20_000).then(|| text.split(' ').next().unwrap_or_default().to_owned())
    })
}

#[test]
fn pods_of_two_nodes_reach_each_other() {
    on_a_node(Namespaces::NETWORK, || {
        let nodes = nodes();
        let chain = Chain::new(vec![overlay()]);
        let results: Vec<Value> =
            nodes.iter().map(|node| chain.add(node, &own_programs()).unwrap().remove(0)).collect();
        let ips: Vec<&str> = results
            .iter()
            .flat_map(|r| r["ips"].as_array().unwrap())
            .map(|ip| ip["address"].as_str().unwrap())
            .collect();
        assert_eq!(ips, ["10.244.1.2/24", "fd44:0:0:1::2/64", "10.244.2.2/24", "fd44:0:0:2::2/64"]);
        for (node, result) in nodes.iter().zip(&results) {
            serve(&format!("{}-pod", node.name), "[::]:80");
            chain.run(node, &own_programs(), "CHECK", result).unwrap();
            chain.run(node, &own_programs(), "STATUS", result).unwrap();
        }
        assert_eq!(request("n1-pod", "10.244.2.2:80").as_deref(), Some("::ffff:10.244.1.2"));
        assert_eq!(request("n2-pod", "[fd44:0:0:1::2]:80").as_deref(), Some("fd44:0:0:2::2"));
        serve("n2", "192.0.2.2:81");
        assert_eq!(request("n1-pod", "192.0.2.2:81").as_deref(), Some("192.0.2.1"));
        // The node routes between its own pods, and back to one that is translated to itself; nothing waits for duplicate detection.
        let way = nodes[0].pod_shell("ip route");
        assert!(way.contains("10.244.1.0/24 via 10.244.1.1") && way.contains("default via 10.244.1.1"), "{way}");
        assert_eq!(nodes[0].shell("ip -o link show type bridge").trim(), "");
        assert!(!nodes[0].shell("ip -6 addr").contains("tentative"));
        // CHECK sees a pod that the node has no route to.
        nodes[1].shell("ip route del 10.244.2.2");
        let failure = chain.run(&nodes[1], &own_programs(), "CHECK", &results[1]).unwrap_err();
        assert!(failure.message.contains("route to 10.244.2.2 does not exist"), "{failure:?}");
        // CHECK sees a connection that an administrator broke, and the next pod repairs it.
        nodes[0].shell("ip route del 10.244.2.0/24");
        let failure = chain.run(&nodes[0], &own_programs(), "CHECK", &results[0]).unwrap_err();
        assert_eq!((failure.code, failure.message.contains("pinion.7: 1 entries differ")), (102, true), "{failure:?}");
        chain.run(&nodes[0], &own_programs(), "STATUS", &results[0]).unwrap();
        chain.run(&nodes[0], &own_programs(), "CHECK", &results[0]).unwrap();
        for (node, result) in nodes.iter().zip(&results) {
            for _ in 0..2 {
                chain.run(node, &own_programs(), "DEL", result).unwrap();
            }
            let leases = shell(&format!("ls /run/{}/leases/net", node.name));
            assert!(!leases.contains("10.244."), "{leases}");
            assert!(!node.shell("ip -o link").contains("veth"));
        }
    });
}

#[test]
fn a_node_without_a_subnet_is_not_ready() {
    on_a_node(Namespaces::NETWORK, || {
        let node = Node::new("n1");
        let mut foreign = overlay();
        foreign["nodes"] = json!({"192.0.2.7": ["10.244.1.0/24", "fd44:0:0:1::/64"]});
        let mut etcd = overlay();
        etcd.as_object_mut().unwrap().remove("nodes");
        etcd["etcd"] = json!({"endpoints": ["http://192.0.2.1:2379"]});
        let mut section = overlay();
        section["ipam"] = json!({"type": "host-local", "subnet": "10.1.0.0/24"});
        let mut unknown = overlay();
        unknown["encrpyted"] = true.into();
        for (config, code, expected) in [
            (foreign, 7, "nodes: has no address of this node"),
            (etcd, 11, "this node has no subnet yet"),
            (section, 7, "the overlay has the subnet"),
            (unknown, 7, "encrpyted: is unknown; members of an overlay are"),
        ] {
            let failure = Chain::new(vec![config]).add(&node, &own_programs()).unwrap_err();
            assert_eq!(failure.code, code, "{failure:?}");
            assert!(failure.message.contains(expected), "{failure:?}");
        }
        assert!(!node.shell("ip -o link").contains("veth"));
    });
}

#[test]
fn flannel_delegates_to_the_bridge() {
    on_a_node(Namespaces::NETWORK, || {
        let node = Node::new("n1");
        shell(
            "mkdir -p /run/n1; printf 'FLANNEL_NETWORK=10.244.0.0/16\\nFLANNEL_SUBNET=10.244.1.1/24\\nFLANNEL_MTU=1450\\n\
             FLANNEL_IPMASQ=true\\n' > /run/n1/subnet.env",
        );
        let chain = Chain::new(vec![json!({"type": "flannel", "subnetFile": "DIRECTORY/subnet.env",
            "dataDir": "DIRECTORY/flannel", "ipam": {"dataDir": "DIRECTORY/leases"},
            "delegate": {"hairpinMode": true, "isDefaultGateway": true}})]);
        let result = chain.add(&node, &own_programs()).unwrap().remove(0);
        assert_eq!(result["ips"][0]["address"], "10.244.1.2/24");
        assert!(node.pod_shell("ip -o link show eth0").contains("mtu 1450"));
        assert!(node.pod_shell("ip route").contains("10.244.0.0/16 via 10.244.1.1"));
        for command in ["CHECK", "STATUS"] {
            chain.run(&node, &own_programs(), command, &result).unwrap();
        }
        assert_eq!(shell("ls /run/n1/flannel").trim(), "0123456789abcdef");
        // The daemon of flannel may be gone when the pod is.
        shell("rm /run/n1/subnet.env");
        for _ in 0..2 {
            chain.run(&node, &own_programs(), "DEL", &result).unwrap();
        }
        assert_eq!(shell("ls /run/n1/flannel").trim(), "");
        let failure = chain.add(&node, &own_programs()).unwrap_err();
        assert!(failure.message.contains("subnet.env"), "{failure:?}");
    });
}
