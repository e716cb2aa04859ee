//! Named networks: attachments, connections, and the resolver of each pod.

mod node;

use std::{
    io::{Read, Write},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use netns::Namespace;
use network::{Driver, Error, Network, NetworkChoice, NetworkRequest, PodRef, SubnetRequest};
use node::{Pod, attach_pod, config, ns_path, on_a_node, open, pod_ref, pod_with, serve, tcp};
use testbed::shell;

const RESOLVER: &str = "127.0.0.11:53";
const A: u16 = 1;
/// Timeout for slow machines; only a failing test waits this long.
const PATIENCE: Duration = Duration::from_secs(10);

fn choice(network: &str) -> NetworkChoice {
    NetworkChoice { network: network.into(), ..NetworkChoice::default() }
}

async fn create(network: &Network, name: &str, subnet: &str, internal: bool) {
    let subnets = vec![SubnetRequest { subnet: subnet.into(), ..SubnetRequest::default() }];
    let request = NetworkRequest { name: name.into(), subnets, internal, ..NetworkRequest::default() };
    network.create_network(request).await.expect("the network is created");
}

async fn attach(network: &Network, number: u32, choices: Vec<NetworkChoice>) -> Result<Pod, Error> {
    attach_pod(network, number, &PodRef { named: Some(choices), ..pod_ref(number) }, &[]).await
}

/// Returns a query for a name.
fn query(name: &str, kind: u16) -> Vec<u8> {
    let mut message = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        message.push(u8::try_from(label.len()).expect("short"));
        message.extend(label.as_bytes());
    }
    message.push(0);
    message.extend(kind.to_be_bytes());
    message.extend([0, 1]);
    message
}

/// Sends a message from a pod and returns the response, if one comes.
fn exchange(ns: &Namespace, message: &[u8]) -> Option<Vec<u8>> {
    let socket = ns.udp_socket("0.0.0.0:0".parse().expect("address")).expect("socket");
    socket.set_read_timeout(Some(PATIENCE)).expect("timeout");
    socket.send_to(message, RESOLVER).expect("send");
    let mut response = [0; 4096];
    let length = socket.recv(&mut response).ok()?;
    Some(response[..length].to_vec())
}

/// Returns the code of a response, and its last four bytes: the address, if it has one.
fn outcome(response: &[u8]) -> (u8, [u8; 4]) {
    (response[3] & 15, response[response.len() - 4..].try_into().expect("four"))
}

/// Responds to every query over UDP and TCP with the address 192.0.2.9, and counts them.
fn upstream(count: Arc<AtomicUsize>) {
    let respond = |query: &[u8]| {
        let mut response = query.to_vec();
        response[2] |= 0x80;
        response[7] = 1;
        response.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 9, 0, 4, 192, 0, 2, 9]);
        response
    };
    let udp = UdpSocket::bind("127.0.0.1:53").expect("bind");
    let tcp = TcpListener::bind("127.0.0.1:53").expect("bind");
    std::thread::spawn(move || {
        let mut message = [0; 4096];
        while let Ok((length, client)) = udp.recv_from(&mut message) {
            count.fetch_add(1, Ordering::Relaxed);
            udp.send_to(&respond(&message[..length]), client).expect("send");
        }
    });
    std::thread::spawn(move || {
        for client in tcp.incoming() {
            let mut client = client.expect("accept");
            let mut length = [0; 2];
            client.read_exact(&mut length).expect("length");
            let mut message = vec![0; usize::from(u16::from_be_bytes(length))];
            client.read_exact(&mut message).expect("query");
            let response = respond(&message);
            client.write_all(&u16::try_from(response.len()).expect("short").to_be_bytes()).expect("length");
            client.write_all(&response).expect("response");
        }
    });
}

fn over_tcp(stream: &mut TcpStream, message: &[u8]) -> Vec<u8> {
    let length = u16::try_from(message.len()).expect("short").to_be_bytes();
    stream.write_all(&[&length, message].concat()).expect("send");
    let mut length = [0; 2];
    stream.read_exact(&mut length).expect("length");
    let mut response = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut response).expect("response");
    response
}

#[test]
fn a_resolver_answers_from_memory_and_forwards_the_rest() {
    on_a_node(|| async {
        let (network, forwarded) = (open(config()), Arc::new(AtomicUsize::new(0)));
        upstream(Arc::clone(&forwarded));
        create(&network, "shop", "10.91.0.0/24", false).await;
        create(&network, "vault", "10.92.0.0/24", true).await;
        let web = attach(&network, 1, vec![choice("shop")]).await.expect("attach");
        let inner = attach(&network, 2, vec![choice("vault")]).await.expect("attach");
        let servers: [IpAddr; 1] = ["127.0.0.1".parse().expect("address")];
        for pod in [&web, &inner] {
            network.serve_names(&pod.id, &pod.ns, &servers).expect("serve");
        }
        assert_eq!(outcome(&exchange(&web.ns, &query("pod-1", A)).expect("a response")), (0, [10, 91, 0, 2]));
        let missing = exchange(&web.ns, &query("pod-1", 28)).expect("a response");
        assert_eq!((missing[3] & 15, missing[7]), (0, 0), "no IPv6 address, but the name exists");
        assert_eq!(forwarded.load(Ordering::Relaxed), 0);
        let name = query("example.org", A);
        assert_eq!(outcome(&exchange(&web.ns, &name).expect("a response")), (0, [192, 0, 2, 9]));
        assert_eq!(forwarded.load(Ordering::Relaxed), 1);
        let address: SocketAddr = RESOLVER.parse().expect("address");
        let mut stream = web.ns.tcp_stream(address).expect("connect");
        assert_eq!(outcome(&over_tcp(&mut stream, &name)), (0, [192, 0, 2, 9]));
        assert_eq!(outcome(&over_tcp(&mut stream, &query("pod-1.shop", A))), (0, [10, 91, 0, 2]));
        // Nothing leaves an internal network by its resolver: names are a channel, too.
        assert_eq!(exchange(&inner.ns, &name).expect("a response")[3] & 15, 2);
        assert_eq!(forwarded.load(Ordering::Relaxed), 1);
        for pod in [&web, &inner] {
            network.detach(&pod.id).await.expect("detach");
        }
        network.settle().await;
    });
}

#[test]
fn a_pod_that_floods_its_resolver_delays_no_other() {
    on_a_node(|| async {
        let network = open(config());
        create(&network, "shop", "10.91.0.0/24", false).await;
        let hostile = attach(&network, 1, vec![choice("shop")]).await.expect("attach");
        let other = attach(&network, 2, vec![choice("shop")]).await.expect("attach");
        // A server that never responds: every forwarded query stays in flight.
        let _silent = UdpSocket::bind("127.0.0.1:53").expect("bind");
        let servers: [IpAddr; 1] = ["127.0.0.1".parse().expect("address")];
        for pod in [&hostile, &other] {
            network.serve_names(&pod.id, &pod.ns, &servers).expect("serve");
        }
        let is_over = Arc::new(AtomicBool::new(false));
        let flood = {
            let (is_over, ns) = (Arc::clone(&is_over), hostile.ns.try_clone().expect("namespace"));
            std::thread::spawn(move || {
                let socket = ns.udp_socket("0.0.0.0:0".parse().expect("address")).expect("socket");
                // Idle connections up to the limit, and beyond it.
                let address: SocketAddr = RESOLVER.parse().expect("address");
                let _idle: Vec<TcpStream> = (0..32).filter_map(|_| ns.tcp_stream(address).ok()).collect();
                let messages = [query("example.org", A), query("pod-2", A), vec![0; 4096], vec![0xff; 12]];
                let mut sent = 0usize;
                while !is_over.load(Ordering::Relaxed) {
                    let _ = socket.send_to(&messages[sent % messages.len()], RESOLVER);
                    sent += 1;
                }
                sent
            })
        };
        let before = testbed::memory(Path::new("/proc/self")).map(|memory| memory.anonymous);
        let began = Instant::now();
        let mut slowest = Duration::ZERO;
        while began.elapsed() < Duration::from_secs(1) {
            let since = Instant::now();
            assert_eq!(outcome(&exchange(&other.ns, &query("pod-1", A)).expect("a response")), (0, [10, 91, 0, 2]));
            slowest = slowest.max(since.elapsed());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        is_over.store(true, Ordering::Relaxed);
        let sent = flood.join().expect("the flood ends");
        assert!(sent > 10_000, "{sent} messages are not a flood");
        assert!(slowest < Duration::from_millis(500), "{slowest:?}");
        let after = testbed::memory(Path::new("/proc/self")).map(|memory| memory.anonymous);
        if let (Some(before), Some(after)) = (before, after) {
            assert!(after < before + (16 << 10), "{before} → {after} KiB");
        }
        for pod in [&hostile, &other] {
            network.detach(&pod.id).await.expect("detach");
        }
        network.settle().await;
    });
}

#[test]
fn a_pod_joins_and_leaves_networks_while_it_runs() {
    on_a_node(|| async {
        let network = open(config());
        create(&network, "vault", "10.92.0.0/24", true).await;
        create(&network, "shop", "10.91.0.0/24", false).await;
        let pod = attach(&network, 1, vec![choice("vault")]).await.expect("attach");
        let routes = || shell("nsenter --net=/run/netns/pod-1 ip -4 route");
        assert!(!routes().contains("default"), "an internal network has no default route: {}", routes());
        let reference = pod_ref(1);
        // Every network is selectable on this node, but by an annotation only those of its CNI directory.
        let annotated = attach_pod(&network, 9, &pod_with(9, "shop"), &[]).await.map(|pod| pod.id);
        assert!(matches!(annotated, Err(Error::Selection { .. })), "{annotated:?}");
        let requested = NetworkChoice { ips: vec!["10.91.0.77".parse().expect("address")], ..choice("shop") };
        let attachment = network.connect(&reference, &pod.ns, &ns_path(1), &requested).await.expect("connect");
        assert_eq!((attachment.interface.as_str(), attachment.network.as_str()), ("eth1", "shop"));
        network.ensure_default_routes(&pod.id, &pod.ns).expect("routes");
        assert!(routes().contains("default via 10.91.0.1 dev eth1"), "{}", routes());
        let again = network.connect(&reference, &pod.ns, &ns_path(1), &choice("shop")).await;
        assert!(again.expect_err("twice").to_string().contains("connected to it already"));
        let taken = attach(&network, 2, vec![requested.clone()]).await.map(|pod| pod.id);
        assert!(matches!(taken, Err(Error::AddressTaken(_))), "{taken:?}");
        let shop = network.network("shop").expect("the network");
        assert!(matches!(network.remove_network("shop").await, Err(Error::NetworkInUse { .. })));
        network.disconnect(&pod.id, &shop).await.expect("disconnect");
        assert!(!shell("nsenter --net=/run/netns/pod-1 ip -o link").contains("eth1"));
        // An address is free as soon as its pod was removed, although its link is deleted in the background.
        for _ in 0..2 {
            let again = attach(&network, 2, vec![requested.clone()]).await.expect("attach");
            network.detach(&again.id).await.expect("detach");
        }
        network.remove_network(&shop.id[..12]).await.expect("remove");
        // The subnet, its bridge and its rules are free for another network.
        create(&network, "next", "10.91.0.0/25", false).await;
        let next = attach(&network, 3, vec![choice("next"), choice("vault")]).await.expect("attach");
        assert_eq!(next.attachment.secondary[0].network, "vault");
        for id in [&pod.id, &next.id] {
            network.detach(id).await.expect("detach");
        }
        network.settle().await;
        // Definitions are kept, leases and records are not.
        drop(network);
        let network = open(config());
        let names: Vec<String> = network.networks().into_iter().map(|definition| definition.name).collect();
        assert_eq!(names, ["next", "vault"]);
        assert!(network.networks().iter().all(|one| network.endpoints(one).expect("endpoints").is_empty()));
    });
}

#[test]
fn macvlan_networks_connect_pods_through_a_link_of_the_node() {
    on_a_node(|| async {
        shell("ip link add up0 type bridge && ip link set up0 up");
        let network = open(config());
        let request = NetworkRequest {
            name: "lan".into(),
            driver: Driver::Macvlan.name().into(),
            subnets: vec![SubnetRequest { subnet: "10.93.0.0/24".into(), ..SubnetRequest::default() }],
            options: [("parent".to_owned(), "up0".to_owned())].into(),
            ..NetworkRequest::default()
        };
        network.create_network(request).await.expect("create");
        let requested = NetworkChoice {
            ips: vec!["10.93.0.50".parse().expect("address")],
            mac: Some("02:00:00:00:00:50".into()),
            ..choice("lan")
        };
        let reference = PodRef { named: Some(vec![choice("lan")]), ..pod_ref(9) };
        let published = attach_pod(&network, 9, &reference, &[tcp(8080, 80)]).await.map(|pod| pod.id);
        assert!(matches!(published, Err(Error::Selection { .. })), "{published:?}");
        let one = attach(&network, 1, vec![requested]).await.expect("attach");
        let two = attach(&network, 2, vec![choice("lan")]).await.expect("attach");
        assert_eq!(one.ip().to_string(), "10.93.0.50");
        let link = shell("nsenter --net=/run/netns/pod-1 ip -o link show eth0");
        assert!(link.contains("02:00:00:00:00:50"), "{link}");
        shell("nsenter --net=/run/netns/pod-2 busybox ping -c 1 -W 5 10.93.0.50");
        assert!(shell("nsenter --net=/run/netns/pod-2 ip route").contains("default via 10.93.0.1"));
        for pod in [&one, &two] {
            network.detach(&pod.id).await.expect("detach");
        }
        network.remove_network("lan").await.expect("remove");
        network.settle().await;
    });
}

/// Reports whether a pod reaches a port within half a second.
fn reaches(pod: &Pod, address: &str) -> bool {
    let address: SocketAddr = address.parse().expect("address");
    let connected = pod.ns.enter(move || TcpStream::connect_timeout(&address, Duration::from_millis(500)));
    // The server responds at once, and ends with a broken pipe otherwise.
    connected.expect("enter").is_ok_and(|mut stream| stream.read_to_string(&mut String::new()).is_ok())
}

#[test]
fn named_networks_are_separated_except_for_published_ports() {
    on_a_node(|| async {
        shell("ip link add up0 type bridge && ip addr add 192.0.2.1/24 dev up0 && ip link set up0 up");
        let network = open(config());
        create(&network, "shop", "10.91.0.0/24", false).await;
        create(&network, "vault", "10.92.0.0/24", true).await;
        let options = [("com.docker.network.bridge.enable_icc".to_owned(), "false".to_owned())];
        let request = NetworkRequest { name: "quiet".into(), options: options.into(), ..NetworkRequest::default() };
        network.create_network(request).await.expect("create");
        let reference = PodRef { named: Some(vec![choice("shop")]), ..pod_ref(1) };
        let shop = attach_pod(&network, 1, &reference, &[tcp(8080, 80)]).await.expect("attach");
        let other = attach(&network, 2, vec![choice("shop")]).await.expect("attach");
        let vault = attach(&network, 3, vec![choice("vault")]).await.expect("attach");
        let inner = attach(&network, 4, vec![choice("vault")]).await.expect("attach");
        let quiet = attach(&network, 5, vec![choice("quiet")]).await.expect("attach");
        let mute = attach(&network, 6, vec![choice("quiet")]).await.expect("attach");
        let plain = node::attach(&network, 7, &[]).await;
        for pod in [&shop, &vault, &mute, &plain] {
            serve(&pod.ns, "0.0.0.0:80");
        }
        let web = |pod: &Pod| format!("{}:80", pod.ip());
        assert!(reaches(&other, &web(&shop)), "in one network");
        assert!(reaches(&inner, &web(&vault)), "in an internal network");
        assert!(!reaches(&quiet, &web(&mute)), "without inter-container communication");
        for (from, to) in [(&plain, &shop), (&shop, &plain), (&quiet, &shop), (&other, &vault), (&vault, &shop)] {
            assert!(!reaches(from, &web(to)), "{} → {}", from.ip(), to.ip());
        }
        // A published port is open to all, except to pods without a way out.
        for (pod, is_open) in [(&plain, true), (&quiet, true), (&other, true), (&vault, false)] {
            assert_eq!(reaches(pod, "192.0.2.1:8080"), is_open, "{}", pod.ip());
        }
        for pod in [&shop, &other, &vault, &inner, &quiet, &mute, &plain] {
            network.detach(&pod.id).await.expect("detach");
        }
        network.settle().await;
    });
}
