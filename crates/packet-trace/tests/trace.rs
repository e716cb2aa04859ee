//! Packets on a node with two bridges, of which each has pods.

use std::{
    net::{IpAddr, SocketAddr, UdpSocket},
    path::Path,
    thread,
    time::Duration,
};

use netns::Namespace;
use packet_trace::{Answer, Found, Place, Probe, Request, Step, Trace, trace};
use testbed::{Namespaces, on_a_node, shell};

const PATIENCE: Duration = Duration::from_secs(1);

fn namespace(name: &str) -> Namespace {
    Namespace::open(&Path::new("/run/netns").join(name)).expect("a namespace")
}

/// Pods a1 and a2 at bridge br-a, b1 at br-b; the addresses are 10.1.0.1 (bridge), 10.1.0.11, 10.1.0.12 and so on.
fn node() {
    shell(
        "sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1
        number=0
        for bridge in a b; do
            number=$((number + 1))
            ip link add br-$bridge type bridge && ip link set br-$bridge up
            ip addr add 10.$number.0.1/24 dev br-$bridge && ip addr add fd0$number::1/64 dev br-$bridge nodad
            for pod in 1 2; do
                [ $bridge$pod != b2 ] || continue
                ip netns add $bridge$pod
                ip link add v-$bridge$pod type veth peer name eth0 netns $bridge$pod
                ip link set v-$bridge$pod master br-$bridge up
                ip -n $bridge$pod link set lo up && ip -n $bridge$pod link set eth0 up
                ip -n $bridge$pod addr add 10.$number.0.1$pod/24 dev eth0
                ip -n $bridge$pod addr add fd0$number::1$pod/64 dev eth0 nodad
                ip -n $bridge$pod route add default via 10.$number.0.1
                ip -n $bridge$pod -6 route add default via fd0$number::1
            done
        done",
    );
}

fn serve(pod: &str, port: u16) {
    let listener = namespace(pod).tcp_listener(SocketAddr::from(([0; 16], port))).expect("listen");
    thread::spawn(move || listener.incoming().for_each(drop));
}

fn from(pod: &str, to: &str, probe: Probe) -> Trace {
    let trace = untidy(to, pod, probe);
    assert_eq!(shell("nft list tables | grep pinion-trace || true"), "", "no table is left");
    trace
}

fn untidy(to: &str, pod: &str, probe: Probe) -> Trace {
    let pod_named = |name: &str| Place { name: name.to_owned(), namespace: namespace(name) };
    let others: Vec<Place> = ["a1", "a2", "b1"].into_iter().filter(|other| *other != pod).map(pod_named).collect();
    let node = Namespace::open(Path::new("/proc/self/ns/net")).expect("the node");
    let destination: IpAddr = to.parse().expect("an address");
    let request =
        Request { pod: &pod_named(pod), node: &node, others: &others, destination, probe, patience: PATIENCE };
    trace(&request).expect("a trace")
}

/// Returns the places and links of a packet, in order.
fn links(trace: &Trace) -> Vec<(String, String)> {
    let link = |step: &Step| match &step.found {
        Found::Link { name, .. } => Some((place(step).to_owned(), name.clone())),
        _ => None,
    };
    trace.steps.iter().filter_map(link).collect()
}

fn owned((place, name): (&str, &str)) -> (String, String) {
    (place.to_owned(), name.to_owned())
}

fn place(step: &Step) -> &str {
    step.pod.as_deref().unwrap_or("node")
}

fn is_answered(trace: &Trace) -> bool {
    matches!(trace.answer, Answer::Answered { .. })
}

#[test]
fn a_packet_to_a_pod_of_the_same_bridge_passes_two_ports() {
    on_a_node(Namespaces::NETWORK, || {
        node();
        serve("a2", 80);
        for to in ["10.1.0.12", "fd01::12"] {
            for probe in [Probe::Tcp(80), Probe::Echo] {
                let trace = from("a1", to, probe);
                assert!(is_answered(&trace) && trace.is_delivered() && trace.lost().is_none(), "{trace:#?}");
                let expected = [("a1", "eth0"), ("node", "v-a1"), ("node", "v-a2"), ("a2", "eth0")].map(owned);
                assert_eq!(links(&trace), expected, "{trace:#?}");
                let counts = trace.steps.iter().filter(|step| matches!(step.found, Found::Link { packets: 1.., .. }));
                assert_eq!(counts.count(), 4, "each of them counts the packet: {trace:#?}");
            }
        }
        let trace = from("a1", "10.1.0.12", Probe::Tcp(81));
        assert_eq!(trace.answer, Answer::Refused);
        assert!(trace.is_delivered(), "{trace:#?}");
        let trace = from("a1", "10.1.0.99", Probe::Tcp(80));
        assert!(matches!(trace.lost().unwrap().found, Found::Neighbor { mac: None, .. }), "{trace:#?}");
    });
}

#[test]
fn the_rule_that_drops_a_packet_is_named_with_its_counter() {
    on_a_node(Namespaces::NETWORK, || {
        node();
        serve("b1", 80);
        let trace = from("a1", "10.2.0.11", Probe::Tcp(80));
        assert!(is_answered(&trace) && trace.is_delivered(), "{trace:#?}");
        let expected = [("a1", "eth0"), ("node", "v-a1"), ("node", "v-b1"), ("b1", "eth0")].map(owned);
        assert_eq!(links(&trace), expected, "{trace:#?}");
        shell(
            "nft 'add table inet guard
            add chain inet guard pods { type filter hook forward priority 0; }
            add chain inet guard to-b
            add rule inet guard pods ip daddr 10.2.0.0/24 counter jump to-b
            add rule inet guard to-b tcp dport 80 counter drop comment \"no web\"'",
        );
        let trace = from("a1", "10.2.0.11", Probe::Tcp(80));
        assert_eq!((&trace.answer, trace.is_delivered()), (&Answer::Silent, false));
        let rules: Vec<(&str, &str, &str)> = trace
            .steps
            .iter()
            .filter_map(|step| match &step.found {
                Found::Rule { chain, text: Some(text), verdict, .. } => {
                    Some((chain.as_str(), text.as_str(), verdict.as_str()))
                }
                _ => None,
            })
            .collect();
        let [(_, jump, "jump to-b"), ("to-b", drop, "drop")] = rules[..] else { panic!("{rules:?}") };
        assert!(jump.contains("ip daddr 10.2.0.0/24 counter packets ") && !jump.contains("packets 0 "), "{jump}");
        assert!(!drop.contains("packets 0 ") && drop.contains("no web"), "{drop}");
        assert!(matches!(&trace.lost().unwrap().found, Found::Rule { verdict, .. } if verdict == "drop"));
        // Another port passes the rule; nobody listens there.
        assert_eq!(from("a1", "10.2.0.11", Probe::Tcp(81)).answer, Answer::Refused);

        // A policy, and in the other pod.
        shell(
            "nft flush ruleset; ip netns exec b1 nft 'add table ip own; add chain ip own in { type filter hook input priority 0; policy drop; }'",
        );
        let trace = from("a1", "10.2.0.11", Probe::Tcp(80));
        let lost = trace.lost().unwrap();
        assert!(
            place(lost) == "b1" && matches!(&lost.found, Found::Policy { chain, .. } if chain == "in"),
            "{trace:#?}"
        );
        // The answer of another pod.
        shell(
            "nft 'add table ip t; add chain ip t f { type filter hook forward priority 0; }; add rule ip t f tcp sport 80 drop'; ip netns exec b1 nft flush ruleset",
        );
        let trace = from("a1", "10.2.0.11", Probe::Tcp(80));
        assert!(trace.is_delivered() && trace.back.iter().any(|step| step.found.ends()), "{trace:#?}");
        assert_eq!(place(trace.lost().unwrap()), "node");
    });
}

#[test]
fn changed_addresses_are_followed() {
    on_a_node(Namespaces::NETWORK, || {
        node();
        serve("b1", 8080);
        shell(
            "nft 'add table ip service
            add chain ip service in { type nat hook prerouting priority dstnat; }
            add rule ip service in ip daddr 10.9.9.9 tcp dport 80 dnat to 10.2.0.11:8080
            add chain ip service out { type nat hook postrouting priority srcnat; }
            add rule ip service out ip daddr 10.2.0.11 masquerade'",
        );
        let trace = from("a1", "10.9.9.9", Probe::Tcp(80));
        assert!(is_answered(&trace) && trace.is_delivered(), "{trace:#?}");
        let to: SocketAddr = "10.2.0.11:8080".parse().unwrap();
        let is_target = |found: &Found| matches!(found, Found::Destination { to: new, .. } if *new == to);
        assert!(trace.steps.iter().any(|step| step.pod.is_none() && is_target(&step.found)), "{trace:#?}");
        let is_source = |found: &Found| matches!(found, Found::Source { to, .. } if to.ip().to_string() == "10.2.0.1");
        assert!(trace.steps.iter().any(|step| is_source(&step.found)), "{trace:#?}");
        assert_eq!(place(trace.steps.last().unwrap()), "b1", "{trace:#?}");
        assert_eq!(links(&trace).last(), Some(&owned(("b1", "eth0"))));
    });
}

#[test]
fn a_pod_that_reaches_itself_through_the_node() {
    on_a_node(Namespaces::NETWORK, || {
        node();
        serve("a1", 8080);
        shell(
            "ip link set v-a1 type bridge_slave hairpin on
            nft 'add table ip service
            add chain ip service in { type nat hook prerouting priority dstnat; }
            add rule ip service in ip daddr 10.9.9.9 tcp dport 80 dnat to 10.1.0.11:8080
            add chain ip service out { type nat hook postrouting priority srcnat; }
            add rule ip service out ip saddr 10.1.0.11 ip daddr 10.1.0.11 masquerade'",
        );
        let trace = from("a1", "10.9.9.9", Probe::Tcp(80));
        assert!(is_answered(&trace) && trace.is_delivered(), "{trace:#?}");
        let expected = [("a1", "eth0"), ("node", "v-a1"), ("node", "v-a1"), ("a1", "eth0")].map(owned);
        assert_eq!(links(&trace), expected, "{trace:#?}");
    });
}

#[test]
fn a_packet_is_not_called_delivered_without_evidence() {
    on_a_node(Namespaces::NETWORK, || {
        node();
        serve("b1", 80);
        // Before every chain that reports: on the node, then in the other pod.
        let drop = |shell_of: &str, device: &str| {
            shell(&format!(
                "{shell_of} nft 'add table netdev t; add chain netdev t c {{ type filter hook ingress device {device} \
                 priority 0; }}; add rule netdev t c ip protocol tcp drop'"
            ));
            let trace = from("a1", "10.2.0.11", Probe::Tcp(80));
            shell(&format!("{shell_of} nft flush ruleset"));
            assert!(!trace.is_delivered(), "{trace:#?}");
            trace
        };
        let trace = drop("", "v-a1");
        assert!(trace.lost().unwrap().pod.is_none(), "{trace:#?}");
        let trace = drop("ip netns exec b1", "eth0");
        assert_eq!(
            (place(trace.lost().unwrap()), &trace.lost().unwrap().found),
            ("b1", &Found::Vanished),
            "{trace:#?}"
        );
    });
}

#[test]
fn traces_at_the_same_time_show_their_own_packets() {
    on_a_node(Namespaces::NETWORK, || {
        node();
        serve("b1", 80);
        shell(
            "nft 'add table ip t; add chain ip t f { type filter hook forward priority 0; }; add rule ip t f ip saddr 10.1.0.12 drop'",
        );
        let traces: Vec<(String, Trace)> = thread::scope(|scope| {
            let start = |number: usize| {
                let pod = ["a1", "a2"][number % 2];
                scope.spawn(move || (pod.to_owned(), untidy("10.2.0.11", pod, Probe::Tcp(80))))
            };
            let running: Vec<_> = (0..8).map(start).collect();
            running.into_iter().map(|thread| thread.join().expect("a trace")).collect()
        });
        for (pod, trace) in traces {
            assert_eq!(is_answered(&trace), pod == "a1", "{trace:#?}");
            let has_rule = trace.steps.iter().any(|step| step.found.ends());
            assert_eq!(has_rule, pod == "a2", "{trace:#?}");
        }
        assert_eq!(shell("nft list tables | grep pinion-trace || true"), "", "no table is left");
    });
}

#[test]
fn packets_to_the_node_and_to_nowhere() {
    on_a_node(Namespaces::NETWORK, || {
        node();
        for to in ["10.1.0.1", "10.2.0.1", "fd01::1"] {
            let trace = from("a1", to, Probe::Echo);
            assert!(is_answered(&trace) && trace.is_delivered(), "{trace:#?}");
            assert_eq!(place(trace.steps.last().unwrap()), "node");
        }
        let trace = from("a1", "127.0.0.1", Probe::Echo);
        assert!(is_answered(&trace) && place(trace.steps.last().unwrap()) == "a1", "{trace:#?}");
        // The node has no default route.
        let trace = from("a1", "192.0.2.1", Probe::Udp(53));
        assert_eq!(trace.answer, Answer::Silent);
        let lost = trace.lost().unwrap();
        assert!(lost.pod.is_none() && matches!(lost.found, Found::NoRoute { .. }), "{trace:#?}");
        shell("ip route add blackhole 192.0.2.0/24; ip -n a1 route del default");
        let lost = from("a1", "192.0.2.1", Probe::Tcp(80)).lost().cloned().unwrap();
        assert!(place(&lost) == "a1" && matches!(lost.found, Found::NoRoute { .. }), "{lost:?}");
        shell("ip -n a1 route add default via 10.1.0.1");
        let trace = from("a1", "192.0.2.1", Probe::Tcp(80));
        assert_eq!(trace.lost().map(place), Some("node"), "{trace:#?}");
    });
}

#[test]
fn answers_over_udp() {
    on_a_node(Namespaces::NETWORK, || {
        node();
        let server: UdpSocket = namespace("b1").udp_socket("0.0.0.0:53".parse().unwrap()).expect("bind");
        thread::spawn(move || {
            let mut buffer = [0; 16];
            while let Ok((length, client)) = server.recv_from(&mut buffer) {
                let _ = server.send_to(&buffer[..length], client);
            }
        });
        assert!(is_answered(&from("a1", "10.2.0.11", Probe::Udp(53))));
        assert_eq!(from("a1", "10.2.0.11", Probe::Udp(54)).answer, Answer::Refused);
    });
}
