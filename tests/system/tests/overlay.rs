//! An overlay of three nodes, each with a daemon of its own, and a real etcd on the wire between them.

use std::collections::HashSet;

use serde_json::{Value, json};
use system_tests::{ContainerSpec, Node, Options, PodSpec, Wire, wait_until};

/// The configuration of a network, the same on all nodes.
fn list(name: &str, vni: u32) -> Value {
    json!({"cniVersion": "1.1.0", "name": name, "plugins": [{"type": "overlay", "vni": vni, "network": "10.244.0.0/16",
        "etcd": {"endpoints": ["http://192.0.2.9:2379"]}, "ipam": {"dataDir": "/run/leases"}}]})
}

/// A node with one pod that serves its name.
struct Member {
    node: Node,
    address: String,
    container: String,
}

impl Member {
    fn start(wire: &Wire, number: u8) -> Self {
        let list = list("cluster", 7);
        let mut node =
            Node::new(Options { cni: vec![("10-overlay.conflist".into(), list.to_string())], ..Options::default() });
        wire.connect(&node, number);
        node.start_daemon();
        node.load_image();
        wait_until("the network is ready", || is_ready(&node));
        let (address, container) = serve(&node, "web");
        Self { node, address, container }
    }

    /// Requests a page from the pod of another node.
    fn reaches(&self, other: &Self) -> bool {
        self.fetches(&other.address)
    }

    fn fetches(&self, address: &str) -> bool {
        let url = format!("http://{address}/");
        self.node
            .crictl(&["exec", "-s", &self.container, "timeout", "1", "wget", "-qO-", &url])
            .stdout
            .contains("hello from a pod")
    }

    #[track_caller]
    fn must_reach(&self, other: &Self) {
        wait_until(&format!("a pod reaches {}", other.address), || self.reaches(other));
    }

    fn subnet(&self) -> String {
        self.address.rsplit_once('.').expect("an address").0.to_owned()
    }

    fn routes(&self) -> String {
        self.node.run("ip", &["route", "show", "proto", "80"]).ok()
    }
}

fn is_ready(node: &Node) -> bool {
    let info = node.crictl(&["info"]).json();
    let conditions = info["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.iter().any(|c| c["type"] == "NetworkReady" && c["status"] == true)
}

/// Runs a pod with a web server; returns its address and the id of the container.
fn serve(node: &Node, name: &str) -> (String, String) {
    let pod = PodSpec::named(node, name);
    let pod_id = node.run_pod(&pod);
    let spec = ContainerSpec::new("server", "demo:1", &["httpd", "-f", "-p", "80", "-h", "/www"]);
    let container = node.run_container(&pod_id, &pod, &spec);
    let address = node.crictl(&["inspectp", &pod_id]).json()["status"]["network"]["ip"].as_str().unwrap().to_owned();
    (address, container)
}

#[test]
fn nodes_find_each_other_and_survive_each_other() {
    let mut wire = Wire::start();
    wire.start_etcd();
    let mut members = [1, 2, 3].map(|number| Member::start(&wire, number));
    let subnets: HashSet<String> = members.iter().map(Member::subnet).collect();
    assert_eq!((subnets.len(), wire.claims().len()), (3, 3), "each node has a subnet of its own");
    for from in &members {
        for to in &members {
            from.must_reach(to);
        }
    }

    // The daemon of a node is killed: its pods stay connected; the new daemon has the same subnet.
    let claims = |wire: &Wire| wire.claims().into_iter().map(|(number, node, _)| (number, node)).collect::<Vec<_>>();
    let (before, leases) = (claims(&wire), wire.claims());
    // What is not of a node, or is nonsense, disturbs no node.
    wire.put("/pinion/overlay/cluster/subnets/x", "x");
    wire.put("/pinion/overlay/cluster/subnets/256", &"x".repeat(2000));
    members[1].node.kill_daemon();
    members[1].node.reap_daemon();
    members[0].must_reach(&members[1]);
    members[1].node.start_daemon();
    wait_until("the new daemon is ready for pods", || is_ready(&members[1].node));
    assert_eq!(wire.claims(), leases, "not even the lease has changed");

    // etcd is killed: pods stay connected, and new ones are attached. It returns with its data.
    wire.kill_etcd();
    let another = serve(&members[0].node, "another").0;
    wait_until("a pod reaches one that is newer than the failure of etcd", || members[1].fetches(&another));
    wire.start_etcd();
    assert_eq!(claims(&wire), before);

    // A node is cut off, and etcd forgets it: the others refuse packets for its subnet. It returns with the same subnet.
    wire.shell("ip link set w3 down");
    let lease = wire.claims().into_iter().find(|(_, node, _)| node == "192.0.2.3").expect("a claim").2;
    wire.shell(&format!("curl -fs http://192.0.2.9:2379/v3/lease/revoke -d '{{\"ID\": \"{lease}\"}}'"));
    let lost = members[2].subnet();
    wait_until("the lost node's subnet is unreachable", || !members[0].routes().contains(&format!("{lost}.0/24 via")));
    assert!(!members[0].reaches(&members[2]));
    members[0].must_reach(&members[1]);
    wire.shell("ip link set w3 up");
    for other in [0, 1] {
        members[other].must_reach(&members[2]);
        members[2].must_reach(&members[other]);
    }
    assert_eq!(claims(&wire), before);

    // An administrator deletes the endpoint: the next pod restores it, or the next comparison, within 30 s.
    members[0].node.run("ip", &["link", "del", "pinion.7"]).ok();
    serve(&members[0].node, "third");
    members[0].must_reach(&members[1]);
    for member in &members {
        member.node.remove_all_pods();
    }
    // Another identifier: the same subnet, and nothing is left of the old one.
    let file = members[0].node.dir.path().join("cni/10-overlay.conflist");
    let links = || members[0].node.run("ip", &["link"]).ok();
    let claims = wire.claims();
    std::fs::write(&file, list("cluster", 8).to_string()).expect("write the file");
    wait_until("the network has another identifier", || {
        links().contains("pinion.8:") && !links().contains("pinion.7:")
    });
    assert_eq!(wire.claims(), claims);
    // Another name with the same identifier: another network, which gets it when the old one is gone.
    std::fs::write(&file, list("renamed", 8).to_string()).expect("write the file");
    wait_until("the network has another name", || links().contains("alias renamed"));
    // A network that is not configured any longer is removed.
    std::fs::remove_file(&file).expect("remove the file");
    wait_until("the node gives up its subnet", || wire.claims().iter().all(|(_, node, _)| node != "192.0.2.1"));
    let left = "ip -o link; ip route; nft list ruleset; ls /run/pinion/overlay/*.json 2>/dev/null || true";
    let left = members[0].node.run("sh", &["-c", left]).ok();
    assert!(
        ["pinion.", "pinbr.", "10.244", "overlay_", "guard_", ".json"].iter().all(|name| !left.contains(name)),
        "{left}"
    );
    for member in members {
        let links = "ip -o link | grep -c veth || true";
        wait_until("no link of a pod exists", || member.node.run("sh", &["-c", links]).stdout.trim() == "0");
        assert_eq!(member.node.run("sh", &["-c", "ls /run/leases/cluster | grep -c ^10 || true"]).ok(), "0");
        member.node.end();
    }
}
