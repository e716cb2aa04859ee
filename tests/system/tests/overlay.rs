//! An overlay of three nodes, each with a daemon of its own, and a real etcd on the wire between them.

use std::{
    collections::HashSet,
    io::{BufRead as _, BufReader},
    os::unix::process::CommandExt,
    process::{Child, Command, Stdio},
};

use serde_json::{Value, json};
use system_tests::{ContainerSpec, Node, Options, Outcome, PodSpec, wait_until};
use tempfile::TempDir;

/// The network between nodes: a namespace with a bridge that has the address 192.0.2.9.
struct Wire {
    anchor: Child,
    etcd: Option<Child>,
    directory: TempDir,
}

impl Wire {
    fn new() -> Self {
        let script = "ip link add wire type bridge && ip addr add 192.0.2.9/24 dev wire && ip link set lo up && \
            ip link set wire up && echo ready && exec sleep 1000000";
        let mut anchor = Command::new("unshare")
            .args(["--net", "--", "sh", "-c", script])
            .stdout(Stdio::piped())
            .spawn()
            .expect("unshare runs");
        let mut line = String::new();
        let output = anchor.stdout.take().expect("output");
        BufReader::new(output).read_line(&mut line).expect("the wire is ready");
        Self { anchor, etcd: None, directory: tempfile::tempdir().expect("a directory") }
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.anchor.id().to_string(), "--net", "--", program]);
        command
    }

    fn shell(&self, script: &str) -> String {
        Outcome::of(self.command("sh").args(["-ec", script])).ok()
    }

    fn start_etcd(&mut self) {
        let (client, peer) = ("http://192.0.2.9:2379", "http://127.0.0.1:2380");
        let mut command = self.command("etcd");
        command
            .arg("--data-dir")
            .arg(self.directory.path().join("etcd"))
            .args(["--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peer])
            .args(["--initial-advertise-peer-urls", peer, "--initial-cluster", &format!("default={peer}")])
            .arg("--unsafe-no-fsync")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0);
        self.etcd = Some(command.spawn().expect("etcd runs"));
        wait_until("etcd responds", || {
            Outcome::of(self.command("curl").args(["-fs", "http://192.0.2.9:2379/health"])).code == Some(0)
        });
    }

    fn kill_etcd(&mut self) {
        if let Some(mut etcd) = self.etcd.take() {
            etcd.kill().expect("etcd is killed");
            etcd.wait().expect("etcd is reaped");
        }
    }

    /// Returns the keys of nodes: the number of the subnet, the node and the lease of each.
    fn claims(&self) -> Vec<(String, String, String)> {
        let (key, end) = ("L3Bpbmlvbi8=", "L3BpbmlvbjA=");
        let body = format!("{{\"key\": \"{key}\", \"range_end\": \"{end}\"}}");
        let response = self.shell(&format!("curl -fs http://192.0.2.9:2379/v3/kv/range -d '{body}'"));
        let response: Value = serde_json::from_str(&response).expect("JSON");
        let decode = |text: &Value| {
            let out = self.shell(&format!("echo {} | base64 -d", text.as_str().expect("text")));
            out.trim().to_owned()
        };
        let entries = response["kvs"].as_array().cloned().unwrap_or_default();
        let claim = |entry: &Value| {
            let key = decode(&entry["key"]);
            let value: Value = serde_json::from_str(&decode(&entry["value"])).ok()?;
            let number = key.rsplit('/').next().unwrap_or_default().to_owned();
            Some((number, value["node"].as_str()?.to_owned(), entry["lease"].as_str()?.to_owned()))
        };
        entries.iter().filter_map(claim).collect()
    }

    /// Writes a key.
    fn put(&self, key: &str, value: &str) {
        let file = self.directory.path().join("value");
        std::fs::write(&file, value).expect("write the value");
        let file = file.display();
        self.shell(&format!(
            "printf '{{\"key\": \"%s\", \"value\": \"%s\"}}' $(printf %s {key} | base64 -w0) $(base64 -w0 {file}) > {file}.json; \
             curl -fs http://192.0.2.9:2379/v3/kv/put -d @{file}.json"
        ));
    }

    /// Connects a node, which gets the address 192.0.2.NUMBER.
    fn connect(&self, node: &Node, number: u8) {
        let pid = node.init_pid();
        self.shell(&format!(
            "ip link add w{number} type veth peer name eth0 netns {pid} && ip link set w{number} up master wire"
        ));
        let script = format!(
            "ip addr add 192.0.2.{number}/24 dev eth0 && ip link set eth0 up && ip route add default via 192.0.2.9"
        );
        node.run("sh", &["-ec", &script]).ok();
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        for process in self.etcd.iter_mut().chain([&mut self.anchor]) {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

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
    let mut wire = Wire::new();
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
