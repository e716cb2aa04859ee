//! Three nodes, each a network namespace with a pod, on one wire.

use std::{
    io::{Read, Write},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    path::Path,
    thread,
    time::Duration,
};

use netns::Namespace;
use overlay::{Converged, Definition, Error, Overlay, PEERS_MAX, PORT, Peer, Peers, converge, remove};
use rtnl::netlink::Socket;
use testbed::{Namespaces, on_a_node, shell};

const ID: u32 = 7;
const PATIENCE: Duration = Duration::from_secs(5);
const NEVER: Duration = Duration::from_millis(300);

fn inside<T: Send + 'static>(name: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
    let namespace = Namespace::open(&Path::new("/run/netns").join(name)).expect("a namespace");
    namespace.enter(work).expect("enter")
}

/// Creates a wire and nodes `n1` … with pods `p1` …; node N has the addresses 192.0.2.N and fd02::N.
fn nodes(count: u8) {
    shell("ip link add wire type bridge; ip link set wire up");
    for n in 1..=count {
        shell(&format!(
            "ip netns add n{n}; ip netns add p{n}; ip link add w{n} type veth peer name eth0 netns n{n}; \
             ip link set w{n} up master wire; ip -n n{n} addr add 192.0.2.{n}/24 dev eth0; \
             ip -n n{n} addr add fd02::{n}/64 dev eth0 nodad; ip -n n{n} link set eth0 up; ip -n n{n} link set lo up; \
             ip -n n{n} link add pod type veth peer name eth0 netns p{n}; \
             ip -n n{n} addr add 10.244.{n}.1/24 dev pod; ip -n n{n} addr add fd44:0:0:{n}::1/64 dev pod nodad; \
             ip -n n{n} link set pod up; ip -n p{n} addr add 10.244.{n}.2/24 dev eth0; \
             ip -n p{n} addr add fd44:0:0:{n}::2/64 dev eth0 nodad; ip -n p{n} link set eth0 up mtu 1450; \
             ip -n p{n} link set lo up; ip -n p{n} route add default via 10.244.{n}.1; \
             ip -n p{n} route add default via fd44:0:0:{n}::1; \
             ip netns exec n{n} sh -c 'echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv6/conf/all/forwarding'"
        ));
    }
}

fn definition(node: u8) -> Definition {
    Definition {
        name: "cluster".into(),
        id: ID,
        port: PORT,
        node: IpAddr::from([192, 0, 2, node]),
        networks: vec!["10.244.0.0/16".parse().unwrap(), "fd44::/48".parse().unwrap()],
        subnets: subnets(node),
        mtu: None,
        masquerades: true,
        encrypted: false,
    }
}

fn subnets(node: u8) -> Vec<rtnl::subnet::Subnet> {
    vec![format!("10.244.{node}.0/24").parse().unwrap(), format!("fd44:0:0:{node}::/64").parse().unwrap()]
}

/// Configures a node with peers.
fn configure(node: u8, definition: Definition, peers: &[u8]) -> Result<Converged, Error> {
    let peers: Vec<Peer> =
        peers.iter().map(|n| Peer { node: IpAddr::from([192, 0, 2, *n]), subnets: subnets(*n), key: None }).collect();
    inside(&format!("n{node}"), move || {
        let overlay = Overlay::new(definition)?;
        let (peers, refused) = Peers::select(&overlay, peers);
        assert!(refused.is_empty(), "{refused:?}");
        converge(&mut Socket::route().expect("a socket"), &overlay, &peers)
    })
}

fn serve(name: &str, address: &str) {
    let address: SocketAddr = address.parse().expect("an address");
    let listener = inside(name, move || TcpListener::bind(address).expect("bind"));
    thread::spawn(move || {
        for client in listener.incoming() {
            let mut client = client.expect("accept");
            let peer = client.peer_addr().expect("peer").ip();
            // More than fits into one packet.
            write!(client, "{peer} {}", "x".repeat(20_000)).expect("response");
        }
    });
}

/// Connects from a namespace; returns the client's address that the server saw.
fn request(from: &str, to: &str, patience: Duration) -> Option<String> {
    let to: SocketAddr = to.parse().expect("an address");
    inside(from, move || {
        let mut stream = TcpStream::connect_timeout(&to, patience).ok()?;
        let mut text = String::new();
        stream.set_read_timeout(Some(patience)).ok()?;
        stream.read_to_string(&mut text).ok()?;
        (text.len() > 20_000).then(|| text.split(' ').next().unwrap_or_default().to_owned())
    })
}

#[test]
fn pods_of_all_nodes_reach_each_other_without_flooding() {
    on_a_node(Namespaces::NETWORK, || {
        nodes(3);
        for node in 1..=3 {
            let converged = configure(node, definition(node), &[1, 2, 3]).unwrap();
            assert_eq!(converged.mtu, 1450);
            let endpoint = shell(&format!("ip -n n{node} -d link show pinion.7"));
            assert!(endpoint.contains(" noudpcsum"), "the inner packet has a checksum: {endpoint}");
            serve(&format!("p{node}"), "[::]:80");
        }
        // The address of the pod arrives, in both families; that of a node is the one of its endpoint.
        assert_eq!(request("p1", "10.244.2.2:80", PATIENCE).as_deref(), Some("::ffff:10.244.1.2"));
        assert_eq!(request("p3", "[fd44:0:0:1::2]:80", PATIENCE).as_deref(), Some("fd44:0:0:3::2"));
        assert_eq!(request("n2", "10.244.3.2:80", PATIENCE).as_deref(), Some("::ffff:10.244.2.0"));
        // Outside of the network, packets have the address of the node.
        serve("n2", "192.0.2.2:81");
        assert_eq!(request("p1", "192.0.2.2:81", PATIENCE).as_deref(), Some("192.0.2.1"));
        // Nothing was learned, and an unknown destination is refused at once and not sent anywhere.
        let entries = shell("ip netns exec n1 bridge fdb show dev pinion.7");
        assert_eq!(entries.lines().count(), 2, "{entries}");
        let unreachable = shell("ip netns exec n1 ip route get 10.244.9.9 2>&1 || true");
        assert!(unreachable.contains("unreachable") || unreachable.contains("No route to host"), "{unreachable}");
    });
}

#[test]
fn only_differences_are_changed_and_what_is_wrong_is_corrected() {
    on_a_node(Namespaces::NETWORK, || {
        nodes(3);
        for node in 1..=3 {
            configure(node, definition(node), &[1, 2, 3]).unwrap();
            serve(&format!("p{node}"), "[::]:80");
        }
        assert_eq!(configure(1, definition(1), &[2, 3]).unwrap().changes, 0);
        // A node that leaves: its packets are refused, those of others pass.
        assert!(configure(1, definition(1), &[2]).unwrap().changes > 0);
        assert_eq!(request("p1", "10.244.3.2:80", NEVER), None);
        assert!(request("p1", "10.244.2.2:80", PATIENCE).is_some());
        configure(1, definition(1), &[2, 3]).unwrap();
        assert!(request("p1", "10.244.3.2:80", PATIENCE).is_some());
        // What an administrator broke is repaired, up to the endpoint itself.
        for script in [
            "ip -n n1 route del 10.244.2.0/24",
            "ip -n n1 neigh flush dev pinion.7 nud permanent",
            "ip netns exec n1 bridge fdb add 02:00:00:00:00:99 dev pinion.7 dst 192.0.2.9 self permanent",
            "ip -n n1 addr add 10.9.9.9/32 dev pinion.7",
            "ip -n n1 link set pinion.7 mtu 1300 address 02:00:00:00:00:88",
            "ip netns exec n1 nft delete table inet pinion_overlay",
            "ip -n n1 link del pinion.7",
            "ip -n n1 link del pinion.7; ip -n n1 link add pinion.7 type vxlan id 9 dstport 4789 local 192.0.2.1",
        ] {
            shell(script);
            configure(1, definition(1), &[2, 3]).unwrap();
            assert_eq!(configure(1, definition(1), &[2, 3]).unwrap().changes, 0, "{script}");
            assert!(request("p1", "10.244.2.2:80", PATIENCE).is_some(), "{script}");
            assert!(request("p2", "[fd44:0:0:1::2]:80", PATIENCE).is_some(), "{script}");
        }
    });
}

#[test]
fn removal_leaves_nothing_and_spares_other_networks() {
    on_a_node(Namespaces::NETWORK, || {
        nodes(1);
        let state = || {
            shell(
                "ip -n n1 -o link; ip -n n1 route; ip -n n1 -6 route show table main; ip netns exec n1 nft list ruleset",
            )
        };
        let other = Definition {
            name: "other".into(),
            id: 8,
            networks: vec!["10.9.0.0/16".parse().unwrap()],
            subnets: vec!["10.9.1.0/24".parse().unwrap()],
            ..definition(1)
        };
        configure(1, other.clone(), &[]).unwrap();
        let before = state();
        configure(1, definition(1), &[2]).unwrap();
        assert_ne!(state(), before);
        for _ in 0..2 {
            inside("n1", || remove(&mut Socket::route().unwrap(), ID, "cluster")).unwrap();
            assert_eq!(state(), before);
        }
        assert_eq!(configure(1, other, &[]).unwrap().changes, 0);
    });
}

#[test]
fn what_cannot_be_is_refused() {
    on_a_node(Namespaces::NETWORK, || {
        nodes(1);
        let foreign = Definition { node: "192.0.2.77".parse().unwrap(), ..definition(1) };
        let large = Definition { mtu: Some(1451), ..definition(1) };
        for (definition, expected) in
            [(foreign, "192.0.2.77 is not an address of this node"), (large, "1451 is more than 1450")]
        {
            let error = configure(1, definition, &[]).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        shell("ip -n n1 link add other type vxlan id 7 dstport 4789 local 192.0.2.1");
        let error = configure(1, definition(1), &[]).unwrap_err().to_string();
        assert!(error.contains("another link uses VXLAN 7 on port 4789"), "{error}");
        shell("ip -n n1 link del other; ip -n n1 link add pinion.7 type bridge");
        let error = configure(1, definition(1), &[]).unwrap_err().to_string();
        assert!(error.contains("of kind \"bridge\"; rename it"), "{error}");
        assert!(shell("ip -n n1 link").contains("pinion.7"));
    });
}

#[test]
fn as_many_peers_as_there_may_be() {
    on_a_node(Namespaces::NETWORK, || {
        nodes(1);
        let peers: Vec<Peer> = (0..u32::try_from(PEERS_MAX).unwrap())
            .map(|n| Peer {
                node: IpAddr::from((0xc612_0000 + n).to_be_bytes()),
                subnets: vec![format!("10.{}.{}.0/28", 128 + n / 256, n % 256).parse().unwrap()],
                key: None,
            })
            .collect();
        let definition = Definition {
            networks: vec!["10.128.0.0/9".parse().unwrap()],
            subnets: vec!["10.255.0.0/28".parse().unwrap()],
            ..definition(1)
        };
        let changes = inside("n1", move || {
            let overlay = Overlay::new(definition).unwrap();
            let (peers, refused) = Peers::select(&overlay, peers);
            assert!(refused.is_empty(), "{refused:?}");
            let mut socket = Socket::route().unwrap();
            [(); 2].map(|()| converge(&mut socket, &overlay, &peers).unwrap().changes)
        });
        assert!(changes[0] > 3 * PEERS_MAX && changes[1] == 0, "{changes:?}");
    });
}

#[test]
fn no_pod_sends_frames_to_endpoints_of_other_nodes() {
    on_a_node(Namespaces::NETWORK, || {
        nodes(2);
        configure(1, definition(1), &[2]).unwrap();
        let receiver = inside("n2", || UdpSocket::bind("192.0.2.2:4789").unwrap());
        let other = inside("n2", || UdpSocket::bind("192.0.2.2:4790").unwrap());
        for socket in [&receiver, &other] {
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
        }
        inside("p1", || {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            for port in [4789, 4790] {
                socket.send_to(b"frame", ("192.0.2.2", port)).unwrap();
            }
        });
        assert!(other.recv(&mut [0; 16]).is_ok(), "the next port is open");
        receiver.set_read_timeout(Some(NEVER)).unwrap();
        assert!(receiver.recv(&mut [0; 16]).is_err(), "the tunnel port is not");
        // The node itself can send to it.
        inside("n1", || UdpSocket::bind("0.0.0.0:0").unwrap().send_to(b"frame", "192.0.2.2:4789").unwrap());
        receiver.set_read_timeout(Some(PATIENCE)).unwrap();
        assert!(receiver.recv(&mut [0; 16]).is_ok());
    });
}

#[test]
fn two_networks_with_one_identifier_do_not_disturb_each_other() {
    on_a_node(Namespaces::NETWORK, || {
        nodes(1);
        configure(1, definition(1), &[2]).unwrap();
        let other = Definition { name: "other".into(), port: 4790, ..definition(1) };
        let error = configure(1, other, &[]).unwrap_err().to_string();
        assert!(error.contains("vni: 7 is that of the network cluster"), "{error}");
        assert_eq!(configure(1, definition(1), &[2]).unwrap().changes, 0);
    });
}

#[test]
fn nodes_that_know_each_other_by_ipv6() {
    on_a_node(Namespaces::NETWORK, || {
        nodes(2);
        for (node, peer) in [(1u8, 2u8), (2, 1)] {
            let address = |n: u8| format!("fd02::{n}").parse::<IpAddr>().unwrap();
            let definition = Definition { node: address(node), ..definition(node) };
            let converged = inside(&format!("n{node}"), move || {
                let overlay = Overlay::new(definition).unwrap();
                let peer = Peer { node: address(peer), subnets: subnets(peer), key: None };
                converge(&mut Socket::route().unwrap(), &overlay, &Peers::select(&overlay, [peer]).0)
            });
            assert_eq!(converged.unwrap().mtu, 1430);
            serve(&format!("p{node}"), "[::]:80");
            shell(&format!("ip -n p{node} link set eth0 mtu 1430"));
        }
        assert_eq!(request("p1", "10.244.2.2:80", PATIENCE).as_deref(), Some("::ffff:10.244.1.2"));
    });
}
