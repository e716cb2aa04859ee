//! Port mappings from the node to pods.

mod node;

use std::net::{TcpListener, TcpStream, UdpSocket};

use network::{Config, Error, PortMapping, Protocol};
use node::{
    assert_clean, attach, config, on_a_node, open, outside, request, request_from, serve, tcp, try_attach,
    try_attach_with,
};
use testbed::shell;

fn at(host_ip: &str, host_port: u16) -> PortMapping {
    PortMapping { host_ip: Some(host_ip.parse().unwrap()), ..tcp(host_port, 80) }
}

#[test]
fn a_port_answers_from_everywhere() {
    on_a_node(|| async {
        let (network, outside) = (open(config()), outside());
        let a = attach(&network, 1, &[tcp(8080, 80), tcp(0, 81)]).await;
        let b = attach(&network, 2, &[]).await;
        serve(&a.ns, "0.0.0.0:80");
        assert_eq!(request_from(&outside, "192.0.2.1:8080").unwrap(), "192.0.2.2", "the pod sees the client's address");
        assert_eq!(request("127.0.0.1:8080").unwrap(), "10.85.0.1");
        assert!(request("10.85.0.1:8080").is_ok() && request("192.0.2.1:8080").is_ok());
        assert!(request_from(&b.ns, "10.85.0.1:8080").is_ok(), "from another pod of the bridge");
        assert!(request_from(&a.ns, "10.85.0.1:8080").is_ok(), "from the pod itself");
        network.detach(&a.id).await.unwrap();
        assert!(request("127.0.0.1:8080").is_err(), "nothing answers once it is detached");
        network.detach(&b.id).await.unwrap();
        network.settle().await;
        assert_clean();
    });
}

#[test]
fn two_daemons_keep_their_rules_apart() {
    on_a_node(|| async {
        let one = open(config());
        let a = attach(&one, 1, &[tcp(8080, 80)]).await;
        serve(&a.ns, "0.0.0.0:80");
        let elsewhere = Config {
            state_dir: "/run/an other".into(),
            bridge: "other0".into(),
            subnet: "10.86.0.0/16".into(),
            ..config()
        };
        let other = open(elsewhere);
        let b = attach(&other, 2, &[tcp(8081, 80)]).await;
        serve(&b.ns, "0.0.0.0:80");
        assert_eq!(shell("nft list tables").trim(), "table ip pinion\ntable ip pinion/run/an_other");
        assert!(request("127.0.0.1:8080").is_ok() && request("127.0.0.1:8081").is_ok());
        assert!(request_from(&b.ns, "10.86.0.1:8080").is_ok(), "from a pod of the other daemon");
        other.detach(&b.id).await.unwrap();
        other.teardown().await.unwrap();
        assert_eq!(shell("nft list tables").trim(), "table ip pinion");
        assert!(request("127.0.0.1:8080").is_ok());
    });
}

#[test]
fn udp_and_an_address_of_the_node() {
    on_a_node(|| async {
        let (network, outside) = (open(config()), outside());
        let udp = PortMapping { protocol: Protocol::Udp, ..tcp(5353, 53) };
        let a = attach(&network, 1, &[udp, at("192.0.2.1", 8080)]).await;
        let b = attach(&network, 2, &[at("127.0.0.1", 8080)]).await;
        serve(&a.ns, "0.0.0.0:80");
        serve(&b.ns, "10.85.0.3:80");
        assert!(request_from(&outside, "192.0.2.1:8080").is_ok());
        assert!(request("127.0.0.1:8080").is_ok(), "the same port on another address leads to the other pod");
        let server = a.ns.enter(|| UdpSocket::bind("0.0.0.0:53").unwrap()).unwrap();
        let client = outside.enter(|| UdpSocket::bind("192.0.2.2:0").unwrap()).unwrap();
        client.send_to(b"x", "192.0.2.1:5353").unwrap();
        let mut buffer = [0; 8];
        let (length, from) = server.recv_from(&mut buffer).unwrap();
        assert_eq!((&buffer[..length], from.ip().to_string().as_str()), (&b"x"[..], "192.0.2.2"));
    });
}

/// Builds an SCTP INIT packet (RFC 9260, section 3.3.2) for a port.
fn sctp_init(to: u16) -> Vec<u8> {
    let crc32c = |bytes: &[u8]| {
        !bytes.iter().fold(!0u32, |crc, byte| {
            (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg()))
        })
    };
    let mut packet = [&[0x13, 0x88][..], &to.to_be_bytes(), &[0; 8]].concat();
    packet.extend([1, 0, 0, 20, 0, 0, 0, 7, 0, 1, 0, 0, 0, 1, 0, 1, 0, 0, 0, 9]);
    let sum = crc32c(&packet);
    packet[8..12].copy_from_slice(&sum.to_le_bytes());
    packet
}

/// Kernels that are built without SCTP sockets translate SCTP packets anyway.
#[test]
fn sctp_packets_reach_the_pod() {
    use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, ipproto, recv, sendto, socket};
    on_a_node(|| async {
        let (network, outside) = (open(config()), outside());
        let sctp = PortMapping { protocol: Protocol::Sctp, ..tcp(3868, 3869) };
        let a = attach(&network, 1, &[sctp]).await;
        let raw = || socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::SCTP)).expect("raw socket");
        let (server, client) = (a.ns.enter(raw).unwrap(), outside.enter(raw).unwrap());
        let node: std::net::SocketAddrV4 = "192.0.2.1:0".parse().unwrap();
        sendto(&client, &sctp_init(3868), SendFlags::empty(), &node).unwrap();
        let mut packet = [0; 128];
        let (length, _) = recv(&server, &mut packet[..], RecvFlags::empty()).unwrap();
        let header = usize::from(packet[0] & 15) * 4;
        assert_eq!(packet[12..16], [192, 0, 2, 2], "the pod sees the client's address");
        assert_eq!(packet[header + 2..header + 4], 3869u16.to_be_bytes(), "{:?}", &packet[..length]);
        network.detach(&a.id).await.unwrap();
        network.settle().await;
        assert_clean();
    });
}

#[test]
fn address_families_have_separate_ports() {
    on_a_node(|| async {
        let outside = outside();
        let network = open(network::Config { subnet6: Some("fd00:85::/64".into()), ..config() });
        let both =
            attach(&network, 1, &[at("0.0.0.0", 8080), PortMapping { container_port: 81, ..at("::", 8080) }]).await;
        serve(&both.ns, "0.0.0.0:80");
        serve(&both.ns, "[::]:81");
        assert_eq!(request_from(&outside, "192.0.2.1:8080").unwrap(), "192.0.2.2");
        shell("ip -n outside -6 route add default via fd02::1");
        assert_eq!(request_from(&outside, "[fd02::1]:8080").unwrap(), "fd02::2");
        for port in [tcp(8080, 1), at("192.0.2.1", 8080), at("fd02::1", 8080)] {
            let error = try_attach(&network, 2, &[port]).await.err().unwrap();
            assert!(matches!(&error, Error::PortTaken { port: 8080, owner, .. } if *owner == both.id), "{error}");
        }
        network.detach(&both.id).await.unwrap();
        let six = attach(&network, 3, &[at("::", 8080)]).await;
        let four = attach(&network, 4, &[at("192.0.2.1", 8080)]).await;
        for pod in [six, four] {
            network.detach(&pod.id).await.unwrap();
        }
        network.settle().await;
        assert_clean();
    });
}

#[test]
fn a_taken_port_is_refused_and_its_owner_named() {
    on_a_node(|| async {
        let network = open(config());
        let a = attach(&network, 1, &[tcp(8080, 80)]).await;
        for port in [tcp(8080, 99), at("127.0.0.1", 8080)] {
            let error = try_attach(&network, 2, &[tcp(8081, 80), port]).await.err().unwrap();
            assert!(matches!(&error, Error::PortTaken { port: 8080, owner, .. } if *owner == a.id), "{error}");
        }
        let twice = try_attach(&network, 2, &[tcp(9000, 1), tcp(9000, 2)]).await.err().unwrap();
        assert!(matches!(twice, Error::PortTaken { port: 9000, .. }), "{twice}");
        let udp = PortMapping { protocol: Protocol::Udp, ..tcp(8080, 80) };
        let b = attach(&network, 2, &[tcp(8081, 80), udp]).await;
        network.detach(&a.id).await.unwrap();
        let c = attach(&network, 3, &[tcp(8080, 80)]).await;
        for pod in [b, c] {
            network.detach(&pod.id).await.unwrap();
        }
        network.settle().await;
        assert_clean();
    });
}

#[test]
fn a_port_in_use_by_the_node_is_refused_if_free_ports_are_required() {
    on_a_node(|| async {
        let network = open(config());
        let tcp_listener = TcpListener::bind("127.0.0.1:8080").unwrap();
        let udp_socket = UdpSocket::bind("0.0.0.0:5353").unwrap();
        let udp = PortMapping { protocol: Protocol::Udp, ..tcp(5353, 53) };
        for port in [tcp(8080, 80), at("127.0.0.1", 8080), udp.clone()] {
            let error = try_attach_with(&network, 1, true, std::slice::from_ref(&port)).await.err().unwrap();
            assert!(matches!(error, Error::PortInUse { port: in_use, .. } if in_use == port.host_port), "{error}");
            assert!(error.to_string().contains(&format!("host port {}/{}", port.host_port, port.protocol)), "{error}");
        }
        network.settle().await;
        assert_clean();

        // Free: another address, another protocol, and a port that only closing connections use.
        let udp_8080 = PortMapping { protocol: Protocol::Udp, ..tcp(8080, 80) };
        let mut free = try_attach_with(&network, 1, true, &[at("192.0.2.1", 8080), udp_8080]).await.unwrap();
        network.detach(&free.id).await.unwrap();
        let client = TcpStream::connect("127.0.0.1:8080").unwrap();
        drop(tcp_listener.accept().unwrap());
        drop((client, tcp_listener));
        free = try_attach_with(&network, 1, true, &[tcp(8080, 80)]).await.unwrap();
        network.detach(&free.id).await.unwrap();

        // Without the requirement (kubelet) the port is mapped, as the portmap plugin does.
        let kubelet = attach(&network, 2, &[udp]).await;
        drop(udp_socket);
        network.detach(&kubelet.id).await.unwrap();
        network.settle().await;
        assert_clean();
    });
}

#[test]
fn pods_do_not_reach_the_nodes_loopback() {
    on_a_node(|| async {
        let network = open(config());
        let a = attach(&network, 1, &[tcp(8080, 80)]).await;
        let node = netns::Namespace::open("/proc/self/ns/net".as_ref()).unwrap();
        serve(&node, "127.0.0.1:9999");
        assert!(request("127.0.0.1:9999").is_ok());
        // Attack from a pod: 127.0.0.1 is routed to the bridge.
        shell(
            "ip netns exec pod-1 sh -c 'ip link set lo down; ip addr del 127.0.0.1/8 dev lo; \
             ip route del table local 127.0.0.0/8 dev lo; ip route del table local 127.0.0.1 dev lo; \
             echo 1 > /proc/sys/net/ipv4/conf/all/route_localnet; ip route add 127.0.0.1 via 10.85.0.1' 2>/dev/null || true",
        );
        shell("nft add chain ip pinion arrived '{ type filter hook input priority 0; }'");
        shell("nft add rule ip pinion arrived iifname pinion0 ip daddr 127.0.0.1 counter");
        shell("nft insert rule ip pinion martians iifname pinion0 ip daddr 127.0.0.1 counter");
        let none = |chain: &str| shell(&format!("nft list chain ip pinion {chain}")).contains("counter packets 0 ");
        let attack = || {
            let to = "127.0.0.1:9999".parse().unwrap();
            std::net::TcpStream::connect_timeout(&to, std::time::Duration::from_millis(300)).is_ok()
        };
        assert!(!a.ns.enter(attack).unwrap());
        assert!(!none("martians") && none("arrived"), "the packets arrive and are dropped by the chain martians");
        shell("nft flush chain ip pinion martians");
        let _ = a.ns.enter(attack).unwrap();
        assert!(!none("arrived"), "without the rule the packets get through, so the rule drops them");
    });
}
