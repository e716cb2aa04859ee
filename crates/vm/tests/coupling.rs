//! Couplings on the kernel of this machine. The guest is a third namespace: a thread carries frames between its tap and
//! that of the coupling, as a virtual machine monitor does. Need root.

use std::{
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream, UdpSocket},
    os::{fd::OwnedFd, unix::fs::MetadataExt},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use agent_api::{Neighbor, Network, Route};
use netns::Namespace;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::{Errno, read, write},
};
use testbed::{Namespaces, on_a_node, shell, wait_until};
use vm::{ErrorKind, coupling::couple};

const LIMIT: Duration = Duration::from_secs(10);
/// `struct virtio_net_hdr`.
const HEADER: usize = 10;
const MAC: &str = "02:00:00:00:00:05";
/// Bytes that are sent over TCP.
const STREAM: usize = 8 << 20;

fn namespace(name: &str) -> Namespace {
    Namespace::open(&Path::new("/run/netns").join(name)).expect("a namespace")
}

fn couple_pod(queues: usize) -> Result<(Vec<vm::coupling::Coupling>, Network), vm::Error> {
    couple(&namespace("pod"), queues)
}

fn current_namespace() -> u64 {
    fs::metadata("/proc/thread-self/ns/net").expect("a namespace").ino()
}

/// Makes the namespace of a pod with `eth0`, the other end of `node0`.
fn make_pod() {
    shell("ip netns add pod; ip -n pod link set lo up");
    shell(&format!("ip link add node0 type veth peer name eth0 address {MAC} netns pod"));
    shell("ip link set node0 up; ip -n pod link set eth0 up");
    shell("ip addr add 10.5.0.1/24 dev node0; ip addr add fd05::1/64 dev node0 nodad");
    shell("ip -n pod addr add 10.5.0.5/24 dev eth0; ip -n pod addr add fd05::5/64 dev eth0 nodad");
    shell("ip -n pod route add default via 10.5.0.1; ip -n pod route add default via fd05::1");
}

/// Whether a frame's checksum is computed by the sender, or left to the receiver as with an offload.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Checksums {
    Complete,
    Partial,
}

/// A guest, which configures the network that it gets.
struct Guest {
    stopped: Arc<AtomicBool>,
    carrier: Option<JoinHandle<()>>,
}

impl Guest {
    fn start(queues: Vec<OwnedFd>, network: &Network, checksums: Checksums) -> Self {
        shell("ip netns add guest; ip -n guest link set lo up");
        let create = || syscall::tap::create_queues("eth0", 1).expect("a tap");
        let own = namespace("guest").enter(create).expect("enter").remove(0);
        configure(network);
        let stopped = Arc::new(AtomicBool::new(false));
        let is_stopped = Arc::clone(&stopped);
        let carrier = thread::spawn(move || carry(&queues, &own, checksums, &is_stopped));
        Self { stopped, carrier: Some(carrier) }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
        self.carrier.take().expect("a thread").join().expect("the thread ends");
        shell("ip netns del guest");
    }
}

/// Does what the agent in the guest does, in the order of the network.
fn configure(network: &Network) {
    let interface = &network.interfaces[0];
    let mac = interface.mac.map(|byte| format!("{byte:02x}")).join(":");
    shell(&format!("ip -n guest link set eth0 address {mac} mtu {} up", interface.mtu));
    for (address, prefix) in &interface.addresses {
        let nodad = if address.is_ipv6() { "nodad" } else { "" };
        // The guest's kernel has its link-local address already.
        shell(&format!("ip -n guest addr replace {address}/{prefix} dev eth0 {nodad}"));
    }
    for route in &network.routes {
        let (address, prefix) = route.destination;
        let mut command = format!("ip -n guest route replace {address}/{prefix} dev eth0 metric {}", route.metric);
        if let Some(gateway) = route.gateway {
            command += &format!(" via {}{gateway}", if gateway.is_ipv6() && address.is_ipv4() { "inet6 " } else { "" });
        }
        if let Some(source) = route.source {
            command += &format!(" src {source}");
        }
        shell(&format!("{command}{}", if route.onlink { " onlink" } else { "" }));
    }
}

/// Carries frames between the queues of a coupling and the tap of a guest, until it is stopped.
fn carry(coupling: &[OwnedFd], guest: &OwnedFd, checksums: Checksums, stopped: &AtomicBool) {
    let mut frame = vec![0; 70_000];
    while !stopped.load(Ordering::Relaxed) {
        let mut files: Vec<PollFd<'_>> = coupling.iter().map(|queue| PollFd::new(queue, PollFlags::IN)).collect();
        files.push(PollFd::new(guest, PollFlags::IN));
        poll(&mut files, Some(&Timespec { tv_sec: 0, tv_nsec: 20_000_000 })).expect("poll");
        for queue in coupling {
            while let Some(length) = receive(queue, &mut frame) {
                send(guest, &frame[..length]);
            }
        }
        while let Some(length) = receive(guest, &mut frame) {
            if checksums == Checksums::Partial {
                leave_checksum_to_receiver(&mut frame[..length]);
            }
            send(&coupling[0], &frame[..length]);
        }
    }
}

fn receive(from: &OwnedFd, frame: &mut [u8]) -> Option<usize> {
    match read(from, frame) {
        Ok(length) => Some(length),
        Err(Errno::AGAIN) => None,
        // The test has deleted the namespace of the other end.
        Err(Errno::BADFD) => None,
        Err(error) => panic!("read a frame: {error}"),
    }
}

fn send(to: &OwnedFd, frame: &[u8]) {
    match write(to, frame) {
        Ok(_) | Err(Errno::AGAIN | Errno::NOBUFS | Errno::IO) => {}
        Err(error) => panic!("write a frame: {error}"),
    }
}

/// Changes a frame with TCP or UDP over IPv4 as a guest with checksum offload would send it: with the sum of the pseudo
/// header in place of the checksum, and a virtio header that requests the rest.
fn leave_checksum_to_receiver(frame: &mut [u8]) {
    const IP: usize = 14;
    const TRANSPORT: usize = IP + 20;
    const VIRTIO_NET_HDR_F_NEEDS_CSUM: u8 = 1;
    let (header, frame) = frame.split_at_mut(HEADER);
    let offset = match frame.get(IP + 9) {
        Some(6) => 16,
        Some(17) => 6,
        _ => return,
    };
    if frame[12..15] != [8, 0, 0x45] {
        return;
    }
    let length = u16::from_be_bytes([frame[IP + 2], frame[IP + 3]]) - 20;
    let addresses = frame[IP + 12..TRANSPORT].chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let mut sum = addresses.sum::<u32>() + u32::from(frame[IP + 9]) + u32::from(length);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    frame[TRANSPORT + offset..TRANSPORT + offset + 2].copy_from_slice(&(sum as u16).to_be_bytes());
    header[0] = VIRTIO_NET_HDR_F_NEEDS_CSUM;
    header[6..8].copy_from_slice(&(TRANSPORT as u16).to_ne_bytes());
    header[8..10].copy_from_slice(&(offset as u16).to_ne_bytes());
}

/// Echoes streams and datagrams at a port in a namespace.
fn echo(name: &str, address: &str) {
    let address: SocketAddr = address.parse().expect("an address");
    let bind = move || (TcpListener::bind(address).expect("bind"), UdpSocket::bind(address).expect("bind"));
    let (listener, socket) = namespace(name).enter(bind).expect("enter");
    thread::spawn(move || {
        for client in listener.incoming() {
            let mut client = client.expect("accept");
            let mut sender = client.try_clone().expect("duplicate");
            thread::spawn(move || std::io::copy(&mut client, &mut sender));
        }
    });
    thread::spawn(move || {
        let mut datagram = [0; 2000];
        while let Ok((length, peer)) = socket.recv_from(&mut datagram) {
            let _ = socket.send_to(&datagram[..length], peer);
        }
    });
}

/// Sends a stream through an echo server and checks what comes back.
fn exchange_stream(mut stream: TcpStream) {
    stream.set_read_timeout(Some(LIMIT)).expect("a time limit");
    stream.set_write_timeout(Some(LIMIT)).expect("a time limit");
    let sent: Vec<u8> = (0..STREAM).map(|at| (at / 7 % 251) as u8).collect();
    let mut sender = stream.try_clone().expect("duplicate");
    let copy = sent.clone();
    let sending = thread::spawn(move || {
        sender.write_all(&copy).expect("send");
        sender.shutdown(std::net::Shutdown::Write).expect("shut down");
    });
    let mut received = Vec::new();
    stream.read_to_end(&mut received).expect("receive");
    sending.join().expect("sent");
    assert!(received == sent, "received {} of {STREAM} bytes, or other ones", received.len());
}

fn exchange_datagram(socket: &UdpSocket, to: &str) {
    socket.set_read_timeout(Some(LIMIT)).expect("a time limit");
    let datagram = [7; 1200];
    socket.send_to(&datagram, to).expect("send");
    let mut received = [0; 2000];
    let length = socket.recv(&mut received).expect("receive");
    assert_eq!(received[..length], datagram);
}

fn answers(address: &str) -> bool {
    std::process::Command::new("ping").args(["-c", "1", "-W", "1", address]).output().expect("ping").status.success()
}

#[test]
fn a_guest_takes_the_place_of_the_pod() {
    on_a_node(Namespaces::NETWORK, || {
        make_pod();
        assert!(answers("10.5.0.5") && answers("fd05::5"), "the namespace itself");
        let before = current_namespace();
        let (mut couplings, network) = couple_pod(1).expect("coupled");
        assert_eq!(current_namespace(), before);
        assert!(!answers("10.5.0.5") && !answers("fd05::5"), "nothing answers without the guest");
        shell("ip neigh flush dev node0");
        let coupling = couplings.remove(0);
        assert_eq!((&coupling.interface, coupling.tap.starts_with("vmtap")), (&network.interfaces[0], true));
        let tap = shell(&format!("ip -d -n pod link show {}", coupling.tap));
        assert!(tap.contains("mtu 1500") && tap.contains("vnet_hdr on") && tap.contains("persist off"), "{tap}");
        assert!(!shell(&format!("ip -n pod addr show {}", coupling.tap)).contains("inet6"));

        for checksums in [Checksums::Complete, Checksums::Partial] {
            let queues = coupling.queues.iter().map(|queue| queue.try_clone().expect("duplicate")).collect();
            let _guest = Guest::start(queues, &network, checksums);
            wait_until("the guest answers", LIMIT, || answers("10.5.0.5") && answers("fd05::5"));
            for address in ["10.5.0.5", "fd05::5"] {
                assert!(shell(&format!("ip neigh show {address} dev node0")).contains(MAC));
            }
            echo("guest", "[::]:80");
            for address in ["10.5.0.5:80", "[fd05::5]:80"] {
                exchange_stream(TcpStream::connect(address).expect("connect"));
            }
            exchange_datagram(&UdpSocket::bind("10.5.0.1:0").expect("bind"), "10.5.0.5:80");
            // From the guest to the node, by its default route.
            if checksums == Checksums::Complete {
                shell("ip addr add 10.6.0.1/32 dev lo");
                let listener = TcpListener::bind("10.6.0.1:80").expect("bind");
                thread::spawn(move || {
                    let (mut client, _) = listener.accept().expect("accept");
                    let mut sender = client.try_clone().expect("duplicate");
                    std::io::copy(&mut client, &mut sender)
                });
                let address: SocketAddr = "10.6.0.1:80".parse().expect("an address");
                let stream = namespace("guest").tcp_stream(address).expect("connect");
                exchange_stream(stream);
            }
        }
        // The addresses stay.
        assert!(shell("ip -n pod addr show eth0").contains("10.5.0.5/24"));
    });
}

#[test]
fn a_guest_takes_the_place_of_a_pod_with_a_macvlan() {
    on_a_node(Namespaces::NETWORK, || {
        // `lan0` is another machine on the wire of the node's `up0`.
        shell("ip netns add lan; ip netns add pod; ip -n pod link set lo up");
        shell("ip link add up0 type veth peer name lan0 netns lan; ip link set up0 up; ip -n lan link set lan0 up");
        shell("ip -n lan addr add 10.7.0.1/24 dev lan0; ip -n lan addr add fd07::1/64 dev lan0 nodad");
        shell(&format!("ip link add net0 link up0 address {MAC} type macvlan mode bridge"));
        shell("ip link set net0 netns pod name eth0; ip -n pod link set eth0 up");
        shell("ip -n pod addr add 10.7.0.5/24 dev eth0; ip -n pod addr add fd07::5/64 dev eth0 nodad");
        let (mut couplings, network) = couple_pod(1).expect("coupled");
        let _guest = Guest::start(couplings.remove(0).queues, &network, Checksums::Complete);
        let answers = |address| namespace("lan").enter(move || answers(address)).expect("enter");
        wait_until("the guest answers", LIMIT, || answers("10.7.0.5") && answers("fd07::5"));
        assert!(shell("ip -n lan neigh show 10.7.0.5 dev lan0").contains(MAC));
        echo("guest", "[::]:80");
        for address in ["10.7.0.5:80", "[fd07::5]:80"] {
            exchange_stream(namespace("lan").tcp_stream(address.parse().expect("an address")).expect("connect"));
        }
        // A multicast group that only the guest is a member of.
        shell("ip -n guest route add 239.1.2.3 dev eth0; ip -n lan route add 239.1.2.3 dev lan0");
        let join = || {
            let socket = UdpSocket::bind("239.1.2.3:90").expect("bind");
            socket.join_multicast_v4(&[239, 1, 2, 3].into(), &[10, 7, 0, 5].into()).expect("join");
            socket
        };
        let member = namespace("guest").enter(join).expect("enter");
        member.set_read_timeout(Some(LIMIT)).expect("a time limit");
        let sender = namespace("lan").udp_socket("10.7.0.1:0".parse().expect("an address")).expect("bind");
        sender.send_to(b"hello", "239.1.2.3:90").expect("send");
        assert_eq!(member.recv(&mut [0; 10]).expect("receive"), 5);
    });
}

/// The network of a ptp plugin, of Calico and Cilium, and of a second interface.
#[test]
fn the_network_is_mirrored() {
    on_a_node(Namespaces::NETWORK, || {
        shell("ip netns add pod; ip -n pod link set lo up");
        for (name, mac) in [("eth0", MAC), ("net1", "02:00:00:00:00:06")] {
            shell(&format!("ip link add node-{name} type veth peer name {name} address {mac} netns pod"));
            shell(&format!("ip link set node-{name} up; ip -n pod link set {name} up"));
        }
        shell("ip -n pod link set net1 mtu 9000");
        let link_local = || shell("ip -n pod addr show scope link").matches("inet6 fe80").count();
        wait_until("both have a link-local address", LIMIT, || {
            link_local() == 2 && !shell("ip -n pod addr show").contains("tentative")
        });
        for command in [
            "addr add 10.5.0.5/32 dev eth0",
            "addr add fd05::5/128 dev eth0 nodad",
            "addr add fd05::6/64 dev eth0 nodad valid_lft 1000 preferred_lft 1000",
            "route add 169.254.1.1 dev eth0 scope link",
            "route add default via 169.254.1.1 dev eth0 src 10.5.0.5 mtu 1450",
            "route add 10.8.0.0/16 via 192.0.2.1 dev eth0 onlink metric 7",
            "route add 10.9.0.0/16 via inet6 fe80::1 dev eth0",
            "route add default via fe80::1 dev eth0",
            "neigh add 169.254.1.1 lladdr 02:00:00:00:00:99 dev eth0 nud permanent",
            // Another table, and a neighbor that is not permanent.
            "route add default via 169.254.1.1 dev eth0 table 100",
            "neigh add 10.5.0.9 lladdr 02:00:00:00:00:98 dev eth0 nud stale",
            "addr add 10.6.0.5/24 dev net1",
            "addr add 10.6.1.5/24 dev net1 noprefixroute",
            "addr add 10.6.2.5 peer 10.6.2.1/32 dev net1",
            "route add 10.6.1.0/24 via 10.6.0.1",
        ] {
            shell(&format!("ip -n pod {command}"));
        }
        let (couplings, network) = couple_pod(1).expect("coupled");
        assert_eq!(
            couplings.iter().map(|c| &c.interface).collect::<Vec<_>>(),
            network.interfaces.iter().collect::<Vec<_>>()
        );

        let [eth0, net1] = &network.interfaces[..] else { panic!("{network:?}") };
        assert_eq!((&*eth0.name, eth0.mac, eth0.mtu), ("eth0", [2, 0, 0, 0, 0, 5], 1450));
        assert_eq!((&*net1.name, net1.mac, net1.mtu), ("net1", [2, 0, 0, 0, 0, 6], 9000));
        let text = |addresses: &[(std::net::IpAddr, u8)]| {
            let mut texts: Vec<String> =
                addresses.iter().map(|(address, prefix)| format!("{address}/{prefix}")).collect();
            texts.sort();
            texts
        };
        assert_eq!(text(&eth0.addresses), ["10.5.0.5/32", "fd05::5/128", "fe80::ff:fe00:5/64"]);
        assert_eq!(text(&net1.addresses), ["10.6.0.5/24", "10.6.1.5/32", "10.6.2.5/32", "fe80::ff:fe00:6/64"]);

        let route = |interface: &str, to: &str, prefix, gateway: &str| Route {
            interface: interface.into(),
            destination: (to.parse().expect("an address"), prefix),
            gateway: gateway.parse().ok(),
            onlink: false,
            source: None,
            metric: if to.contains(':') { 1024 } else { 0 },
        };
        let expected = [
            route("eth0", "169.254.1.1", 32, ""),
            Route { source: Some([10, 6, 2, 5].into()), ..route("net1", "10.6.2.1", 32, "") },
            Route { source: Some([10, 5, 0, 5].into()), ..route("eth0", "0.0.0.0", 0, "169.254.1.1") },
            Route { onlink: true, metric: 7, ..route("eth0", "10.8.0.0", 16, "192.0.2.1") },
            route("eth0", "10.9.0.0", 16, "fe80::1"),
            route("eth0", "::", 0, "fe80::1"),
            route("net1", "10.6.1.0", 24, "10.6.0.1"),
        ];
        for route in &expected {
            assert!(network.routes.contains(route), "{route:?} of {:#?}", network.routes);
        }
        assert_eq!(network.routes.len(), expected.len(), "{:#?}", network.routes);
        assert!(network.routes.is_sorted_by_key(|route| route.gateway.is_some()));
        let neighbor =
            Neighbor { interface: "eth0".into(), address: [169, 254, 1, 1].into(), mac: [2, 0, 0, 0, 0, 0x99] };
        assert_eq!(network.neighbors, [neighbor]);
    });
}

#[test]
fn a_pod_is_coupled_again_when_its_taps_are_gone() {
    on_a_node(Namespaces::NETWORK, || {
        make_pod();
        let (couplings, network) = couple_pod(4).expect("coupled");
        assert_eq!(couplings[0].queues.len(), 4);
        for queue in &couplings[0].queues {
            assert!(rustix::io::fcntl_getfd(queue).expect("flags").contains(rustix::io::FdFlags::CLOEXEC));
            assert!(rustix::fs::fcntl_getfl(queue).expect("flags").contains(rustix::fs::OFlags::NONBLOCK));
        }
        let filters = || shell("tc -n pod filter show dev eth0 ingress");
        let before = filters();
        assert!(before.contains("Egress Redirect to device vmtap"), "{before}");
        let error = couple_pod(1).expect_err("the taps are in use");
        assert!(error.to_string().contains("an earlier virtual machine"), "{error}");
        assert_eq!(filters(), before, "the redirections are left alone");

        drop(couplings);
        assert!(!shell("ip -n pod link show").contains("vmtap"), "a tap ends with its queues");
        assert!(!answers("10.5.0.5"), "frames are dropped without the tap");
        let (mut couplings, again) = couple_pod(4).expect("coupled again");
        assert_eq!(again, network);
        let _guest = Guest::start(couplings.remove(0).queues, &network, Checksums::Complete);
        wait_until("the guest answers", LIMIT, || answers("10.5.0.5") && answers("fd05::5"));
    });
}

#[test]
fn what_cannot_be_coupled_is_refused_by_name() {
    on_a_node(Namespaces::NETWORK, || {
        make_pod();
        for (add, name, cause) in [
            ("link add net1 type veth peer name net2", "net", "it is down"),
            ("tuntap add net1 mode tap; ip -n pod link set net1 up arp off", "net1", "it has no ARP (kind tun)"),
            ("tuntap add net1 mode tun", "net1", "it has no MAC address (kind tun)"),
            (
                "tuntap add net1 mode tap; ip -n pod link set net1 up address 02:00:00:00:00:05",
                "net1",
                "the MAC address of eth0",
            ),
            ("link add link eth0 net1 up type macvlan", "net1", "it is on top of eth0"),
            ("route add unreachable 10.9.0.0/16", "route 10.9.0.0/16", "unicast"),
            ("route add 10.9.0.0/16 nexthop via 10.5.0.1 nexthop via 10.5.0.2", "route 10.9.0.0/16", "one next hop"),
        ] {
            shell(&format!("ip -n pod {add}"));
            let error = couple_pod(1).expect_err("refused");
            assert_eq!(error.kind, ErrorKind::Invalid, "{error}");
            assert!(error.operation.contains(name) && error.cause.contains(cause), "{error}");
            let is_route = add.starts_with("route");
            shell(if is_route { "ip -n pod route del 10.9.0.0/16" } else { "ip -n pod link del net1" });
        }
        assert_eq!(couple_pod(0).expect_err("refused").kind, ErrorKind::Invalid);
        // Filters of another program stay, and what was coupled before them is undone.
        shell("ip link add node1 type veth peer name net1 netns pod; ip link set node1 up; ip -n pod link set net1 up");
        for qdisc in ["clsact", "ingress"] {
            shell(&format!("tc -n pod qdisc add dev net1 {qdisc}"));
            shell("tc -n pod filter add dev net1 ingress u32 match u32 0 0 flowid 1:1");
            let error = couple_pod(1).expect_err("refused");
            assert!(error.operation.contains("net1") && error.cause.contains(qdisc), "{error}");
            assert!(shell("tc -n pod filter show dev net1 ingress").contains("flowid 1:1"));
            assert_eq!(shell("tc -n pod qdisc show dev eth0 ingress"), "");
            assert!(!shell("ip -n pod link show").contains("vmtap"));
            shell(&format!("tc -n pod qdisc del dev net1 {qdisc}"));
        }
        assert!(answers("10.5.0.5"), "the namespace itself");
        assert_eq!(couple_pod(1).expect("coupled").0.len(), 2);
    });
}

#[test]
fn nothing_outlives_the_namespace() {
    on_a_node(Namespaces::NETWORK, || {
        make_pod();
        let weak = namespace("pod").downgrade_at(Path::new("/run/netns/pod")).expect("a reference");
        let (couplings, _) = couple_pod(1).expect("coupled");
        let started = Instant::now();
        shell("ip netns del pod");
        assert!(weak.upgrade().is_err());
        // A descriptor of a tap does not keep the namespace alive beyond its end.
        drop(couplings);
        wait_until("the node's end is gone with the pod's", LIMIT, || !Path::new("/sys/class/net/node0").exists());
        assert!(started.elapsed() < LIMIT);
        assert!(!shell("ip link show").contains("vmtap"));
    });
}
