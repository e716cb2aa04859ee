//! What plugins do to packets, on the kernel of this machine. No reference plugin is needed.

mod node;

use std::{
    io::{Read, Write},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    path::Path,
    thread,
    time::{Duration, Instant},
};

use netns::Namespace;
use node::{Chain, Node, SECOND, own_programs};
use serde_json::{Value, json};
use testbed::{Namespaces, on_a_node, shell};

const PATIENCE: Duration = Duration::from_secs(10);
/// How long a packet is waited for that must not arrive.
const NEVER: Duration = Duration::from_millis(300);

fn namespace(name: &str) -> Namespace {
    Namespace::open(&Path::new("/run/netns").join(name)).expect("a namespace")
}

/// Sends each client its own address, in a namespace.
fn serve(name: &str, address: &str) {
    let address: SocketAddr = address.parse().expect("an address");
    let listener = namespace(name).enter(move || TcpListener::bind(address).expect("bind")).expect("enter");
    thread::spawn(move || {
        for client in listener.incoming() {
            let mut client = client.expect("accept");
            let peer = client.peer_addr().expect("peer").ip();
            write!(client, "{peer}").expect("response");
        }
    });
}

/// Connects from a namespace and returns the client's address that the server saw.
fn request(from: &str, to: &str, patience: Duration) -> Option<IpAddr> {
    let to: SocketAddr = to.parse().expect("an address");
    let exchange = move || {
        let mut stream = TcpStream::connect_timeout(&to, patience).ok()?;
        let mut text = String::new();
        stream.set_read_timeout(Some(patience)).ok()?;
        stream.read_to_string(&mut text).ok()?;
        text.parse().ok()
    };
    namespace(from).enter(exchange).expect("enter")
}

/// A machine at 192.0.2.2 that is connected to the node's `up0`.
fn client(node: &Node) {
    shell("ip netns add client");
    node.shell("ip link set up1 netns client");
    shell("ip -n client link set up1 up; ip -n client addr add 192.0.2.2/24 dev up1; ip -n client link set lo up");
    node.shell("ip addr add fd02::1/64 dev up0 nodad");
    shell("ip -n client addr add fd02::2/64 dev up1 nodad");
}

fn addresses(subnets: &[&str]) -> Value {
    json!({"type": "host-local", "ranges": subnets.iter().map(|s| json!([{"subnet": s}])).collect::<Vec<_>>(),
        "dataDir": "DIRECTORY/leases", "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]})
}

/// Adds a second pod to a node.
fn second_pod(node: &Node, chain: &Chain) -> Vec<Value> {
    let (first, second) = (format!("/run/netns/{}", node.name), format!("/run/netns/{SECOND}"));
    shell(&format!("touch {second}; mount --bind {first} {second}; ln -s /run/{} /run/{SECOND}", node.name));
    shell(&format!("ip netns add {SECOND}-pod; ip -n {SECOND}-pod link set lo up"));
    chain.add(&Node { name: SECOND.into() }, &own_programs()).expect("the second pod is added")
}

#[test]
fn frames_with_another_mac_address_are_dropped() {
    on_a_node(Namespaces::NETWORK, || {
        let node = Node::new("first");
        let chain = Chain::new(vec![json!({"type": "bridge", "bridge": "br5", "isGateway": true, "macspoofchk": true,
            "ipam": addresses(&["10.1.0.0/24"])})]);
        let results = chain.add(&node, &own_programs()).unwrap();
        serve("first", "10.1.0.1:80");
        assert!(request("first-pod", "10.1.0.1:80", PATIENCE).is_some());
        let mac = results[0]["interfaces"][2]["mac"].as_str().unwrap().to_owned();
        node.pod_shell("ip link set eth0 address 02:00:00:00:00:99");
        assert_eq!(request("first-pod", "10.1.0.1:80", NEVER), None);
        node.pod_shell(&format!("ip link set eth0 address {mac}"));
        assert!(request("first-pod", "10.1.0.1:80", PATIENCE).is_some());
        chain.run(&node, &own_programs(), "DEL", &results[0]).unwrap();
        assert!(!node.shell("nft list ruleset").contains("cni-br-iface"));
    });
}

#[test]
fn isolated_pods_reach_only_the_node() {
    on_a_node(Namespaces::NETWORK, || {
        let node = Node::new("first");
        let isolated = |is_isolated: bool| {
            Chain::new(vec![json!({"type": "bridge", "bridge": "br5", "isGateway": true, "portIsolation": is_isolated,
                "ipam": addresses(&["10.1.0.0/24"])})])
        };
        let first = isolated(true).add(&node, &own_programs()).unwrap();
        let second = second_pod(&node, &isolated(true));
        let address = second[0]["ips"][0]["address"].as_str().unwrap().split('/').next().unwrap().to_owned();
        serve("first", "10.1.0.1:80");
        serve("second-pod", "0.0.0.0:80");
        assert!(request("first-pod", "10.1.0.1:80", PATIENCE).is_some());
        assert!(request("first", &format!("{address}:80"), PATIENCE).is_some());
        assert_eq!(request("first-pod", &format!("{address}:80"), NEVER), None);
        // A port that is not isolated exchanges frames with those that are.
        let port = first[0]["interfaces"][1]["name"].as_str().unwrap();
        node.shell(&format!("ip link set {port} type bridge_slave isolated off"));
        assert!(request("first-pod", &format!("{address}:80"), PATIENCE).is_some());
    });
}

#[test]
fn ports_lead_to_the_pod_in_both_families() {
    on_a_node(Namespaces::NETWORK, || {
        let node = Node::new("first");
        client(&node);
        let chain = Chain {
            runtime: json!({"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"},
                {"hostPort": 8081, "containerPort": 80, "protocol": "tcp", "hostIP": "192.0.2.1"},
                {"hostPort": 8082, "containerPort": 80, "protocol": "tcp", "hostIP": "127.0.0.1"}]}),
            ..Chain::new(vec![
                json!({"type": "ptp", "ipam": addresses(&["10.1.0.0/24", "fd01::/64"])}),
                json!({"type": "portmap", "capabilities": {"portMappings": true}}),
            ])
        };
        let results = chain.add(&node, &own_programs()).unwrap();
        serve("first-pod", "[::]:80");
        let seen = |from: &str, to: &str| request(from, to, PATIENCE).map(|address| address.to_canonical().to_string());
        assert_eq!(seen("client", "192.0.2.1:8080").as_deref(), Some("192.0.2.2"));
        assert_eq!(seen("client", "[fd02::1]:8080").as_deref(), Some("fd02::2"));
        assert_eq!(seen("client", "192.0.2.1:8081").as_deref(), Some("192.0.2.2"));
        assert!(seen("first", "127.0.0.1:8080").is_some(), "the node's loopback address");
        assert!(seen("first", "127.0.0.1:8082").is_some(), "a port of the node's loopback address");
        assert!(seen("first-pod", "192.0.2.1:8080").is_some(), "the pod reaches its own port");
        assert_eq!(request("client", "192.0.2.1:8082", NEVER), None);
        assert_eq!(request("first", "127.0.0.1:8081", NEVER), None);
        chain.run(&node, &own_programs(), "CHECK", results.last().unwrap()).unwrap();
        chain.run(&node, &own_programs(), "DEL", results.last().unwrap()).unwrap();
        assert_eq!(request("client", "192.0.2.1:8080", NEVER), None);
        assert!(!node.shell("nft list ruleset").contains("10.1.0."));
    });
}

#[test]
fn udp_clients_reach_the_pod_although_they_sent_before() {
    on_a_node(Namespaces::NETWORK, || {
        let node = Node::new("first");
        client(&node);
        let chain = Chain {
            runtime: json!({"portMappings": [{"hostPort": 8053, "containerPort": 53, "protocol": "udp"}]}),
            ..Chain::new(vec![
                json!({"type": "ptp", "ipam": addresses(&["10.1.0.0/24"])}),
                json!({"type": "portmap", "capabilities": {"portMappings": true}}),
            ])
        };
        // Chains that translate addresses exist from an earlier pod on, and a rule of the node that needs connections.
        let input = "add chain ip node input { type filter hook input priority 0; }";
        node.shell(&format!("nft add table ip node; nft \"{input}\"; nft add rule ip node input ct state new accept"));
        let results = chain.add(&node, &own_programs()).unwrap();
        chain.run(&node, &own_programs(), "DEL", results.last().unwrap()).unwrap();
        let bind = |name: &str, address: &'static str| {
            namespace(name).enter(move || UdpSocket::bind(address).expect("bind")).expect("enter")
        };
        let on_node = bind("first", "192.0.2.1:8053");
        on_node.set_read_timeout(Some(PATIENCE)).unwrap();
        let from = bind("client", "192.0.2.2:4000");
        let mut buffer = [0; 16];
        from.send_to(b"before", "192.0.2.1:8053").unwrap();
        assert_eq!(on_node.recv(&mut buffer).unwrap(), 6);

        chain.add(&node, &own_programs()).unwrap();
        let in_pod = bind("first-pod", "0.0.0.0:53");
        in_pod.set_read_timeout(Some(PATIENCE)).unwrap();
        from.send_to(b"mapped", "192.0.2.1:8053").unwrap();
        assert_eq!(in_pod.recv(&mut buffer).expect("the flow to the node is forgotten"), 6);
        chain.run(&node, &own_programs(), "DEL", results.last().unwrap()).unwrap();
        from.send_to(b"again", "192.0.2.1:8053").unwrap();
        assert_eq!(on_node.recv(&mut buffer).expect("the flow to the pod is forgotten"), 5);
    });
}

#[test]
fn traffic_is_limited_in_both_directions() {
    on_a_node(Namespaces::NETWORK, || {
        let node = Node::new("first");
        // 8 Mbit/s with a bucket of 100 kB: a megabyte takes at least 0.9 s.
        let (rate, burst) = (8_000_000, 800_000);
        let chain = Chain::new(vec![
            json!({"type": "ptp", "ipam": addresses(&["10.1.0.0/24"])}),
            json!({"type": "bandwidth", "ingressRate": rate, "ingressBurst": burst, "egressRate": rate, "egressBurst": burst}),
        ]);
        chain.add(&node, &own_programs()).unwrap();
        for (from, to, address) in [("first", "first-pod", "10.1.0.2:80"), ("first-pod", "first", "10.1.0.1:80")] {
            let address: SocketAddr = address.parse().unwrap();
            let listener = namespace(to).enter(move || TcpListener::bind(address).expect("bind")).expect("enter");
            let receiver = thread::spawn(move || {
                let (mut stream, _) = listener.accept().expect("accept");
                let (began, mut bytes) = (Instant::now(), Vec::new());
                stream.read_to_end(&mut bytes).expect("read");
                (bytes.len(), began.elapsed())
            });
            let send = move || {
                let mut stream = TcpStream::connect_timeout(&address, PATIENCE).expect("connect");
                stream.write_all(&vec![0; 1_000_000]).expect("write");
            };
            namespace(from).enter(send).expect("enter");
            let (length, took) = receiver.join().expect("the receiver");
            assert_eq!(length, 1_000_000);
            assert!(took > Duration::from_millis(800), "{from} sent 1 MB in {took:?}");
        }
    });
}

#[test]
fn the_firewall_accepts_pods_and_separates_bridges() {
    on_a_node(Namespaces::NETWORK, || {
        let node = Node::new("first");
        client(&node);
        // A node whose firewall drops forwarded packets, in the table that iptables-nft has.
        node.shell("nft add table ip filter; nft \"add chain ip filter FORWARD { type filter hook forward priority 0; policy drop; }\"");
        let chain = |bridge: &str, subnet: &str| {
            Chain::new(vec![
                json!({"type": "bridge", "bridge": bridge, "isGateway": true, "ipMasq": true, "ipam": addresses(&[subnet])}),
                json!({"type": "firewall", "ingressPolicy": "same-bridge"}),
            ])
        };
        let first = chain("br5", "10.1.0.0/24");
        let results = first.add(&node, &own_programs()).unwrap();
        serve("client", "192.0.2.2:80");
        assert_eq!(request("first-pod", "192.0.2.2:80", PATIENCE), Some("192.0.2.1".parse().unwrap()));
        second_pod(&node, &chain("br6", "10.2.0.0/24"));
        serve("second-pod", "0.0.0.0:80");
        assert!(request("first", "10.2.0.2:80", PATIENCE).is_some());
        assert_eq!(request("first-pod", "10.2.0.2:80", NEVER), None);
        first.run(&node, &own_programs(), "CHECK", results.last().unwrap()).unwrap();
        first.run(&node, &own_programs(), "DEL", results.last().unwrap()).unwrap();
        assert!(!node.shell("nft list ruleset").contains("10.1.0.2"));
    });
}

#[test]
fn a_missing_kernel_feature_is_named() {
    on_a_node(Namespaces::NETWORK, || {
        for (plugin, module) in [
            (json!({"type": "vlan", "master": "up0", "vlanId": 5}), "8021q"),
            (json!({"type": "ipvlan", "master": "up0", "ipam": addresses(&["10.1.0.0/24"])}), "ipvlan"),
            (json!({"type": "dummy", "ipam": addresses(&["10.1.0.0/24"])}), "dummy"),
        ] {
            let node = Node::new(module);
            // Kernels that have the module are tested with the reference plugins.
            if let Err(failure) = Chain::new(vec![plugin.clone()]).add(&node, &own_programs()) {
                assert_eq!(failure.code, 103, "{}", failure.message);
                assert!(failure.message.contains(&format!("load the module {module}")), "{}", failure.message);
                assert!(!node.pod_shell("ip -o link").contains("eth0"));
            }
            let leases = shell(&format!("ls /run/{module}/leases/net 2>/dev/null || true"));
            let addresses = node.pod_shell("ip -o -4 addr show dev eth0 2>/dev/null || true");
            assert_eq!(leases.contains("10.1.0.2"), addresses.contains("10.1.0.2"), "{plugin}: {leases}");
        }
    });
}

#[test]
fn invalid_requests_are_refused_with_the_codes_of_the_specification() {
    on_a_node(Namespaces::NETWORK, || {
        let (node, programs) = (Node::new("first"), own_programs());
        let run = |command: &str, config: Value| node.run(&programs, command, &config, "").unwrap_err();
        let config = |version: &str| json!({"cniVersion": version, "name": "net", "type": "loopback"});
        assert_eq!(run("ADD", config("9.9.9")).code, 1);
        assert_eq!(run("CHECK", config("0.3.1")).code, 1);
        assert_eq!(run("GC", config("1.0.0")).code, 1);
        assert_eq!(run("NONE", config("1.0.0")).code, 4);
        assert_eq!(run("ADD", json!({"cniVersion": "1.0.0", "name": "../x", "type": "loopback"})).code, 7);
        assert_eq!(run("ADD", json!({"cniVersion": "1.0.0", "name": "net", "type": "vlan"})).code, 7);
        let versions = node.run(&programs, "VERSION", &config("1.0.0"), "").unwrap().unwrap();
        assert_eq!(versions["supportedVersions"], json!(["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"]));
        // The node's own namespace would be changed by mistake.
        let own = Node { name: "first".into() };
        shell("umount /run/netns/first-pod; mount --bind /run/netns/first /run/netns/first-pod");
        assert_eq!(own.run(&programs, "ADD", &config("1.0.0"), "").unwrap_err().code, 4);
    });
}

#[test]
fn addresses_of_attachments_that_are_not_valid_are_released() {
    on_a_node(Namespaces::NETWORK, || {
        let (node, programs) = (Node::new("first"), own_programs());
        let chain = Chain::new(vec![json!({"type": "ptp", "ipMasq": true, "ipam": addresses(&["10.1.0.0/24"])})]);
        chain.add(&node, &programs).unwrap();
        let collect = |valid: Value| {
            let mut config = json!({"cniVersion": "1.1.0", "name": "net", "type": "ptp", "ipMasq": true,
                "ipam": addresses(&["10.1.0.0/24"])});
            config["cni.dev/valid-attachments"] = valid;
            node.run(&programs, "GC", &config, "").unwrap();
            let state = shell("ls /run/first/leases/net") + &node.shell("nft list ruleset");
            state.matches("10.1.0.2").count()
        };
        assert_eq!(collect(json!([{"containerID": "0123456789abcdef", "ifname": "eth0"}])), 2);
        assert_eq!(collect(json!([])), 0);
    });
}

#[test]
fn other_address_management_is_a_program() {
    on_a_node(Namespaces::NETWORK, || {
        let (node, programs) = (Node::new("first"), own_programs());
        let program = |name: &str, script: &str| {
            std::fs::write(programs.join(name), format!("#!/bin/sh\n{script}\n")).unwrap();
            shell(&format!("chmod 755 {}/{name}", programs.display()));
        };
        let chain =
            |kind: &str| Chain::new(vec![json!({"type": "ptp", "ipam": {"type": kind, "x": "y".repeat(200_000)}})]);
        let result = r#"{"cniVersion":"1.1.0","ips":[{"address":"10.7.0.5/24","gateway":"10.7.0.1"}]}"#;
        program("lender", &format!("echo $CNI_COMMAND >> /run/calls; [ $CNI_COMMAND = DEL ] || echo '{result}'"));
        // A configuration of 200 kB that the program does not read.
        let results = chain("lender").add(&node, &programs).unwrap();
        assert_eq!(results[0]["ips"][0]["address"], "10.7.0.5/24");
        chain("lender").run(&node, &programs, "DEL", &results[0]).unwrap();
        assert_eq!(std::fs::read_to_string("/run/calls").unwrap(), "ADD\nDEL\n");
        program("refusing", r#"echo '{"code": 11, "msg": "later"}'; exit 1"#);
        let failure = chain("refusing").add(&node, &programs).unwrap_err();
        assert_eq!((failure.code, failure.message.contains("refusing: later")), (11, true), "{}", failure.message);
        // The search path of plugin programs has only nft and ip.
        program("endless", "exec /bin/cat /dev/zero");
        assert!(chain("endless").add(&node, &programs).unwrap_err().message.contains("longer than 1 MiB"));
        assert_eq!(chain("absent").add(&node, &programs).unwrap_err().code, 999);
        assert_eq!(chain("../../bin/sh").add(&node, &programs).unwrap_err().code, 7);
        assert!(!node.shell("ip -o link").contains("veth"));
    });
}
