//! A network on a throwaway node, pods on it, and machines outside of it.
#![allow(dead_code, reason = "each test file uses a part")]

pub(crate) mod plugins;

use std::{
    io::{Read, Write},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    time::Duration,
};

use netns::Namespace;
use network::{Attachment, Config, Error, Network, PodRef, PortMapping, Protocol};
use testbed::{Namespaces, run_on_a_node, shell, test_name, wait_until_with};
use tokio::runtime::Runtime;

/// Timeout for slow machines; only a failing test waits this long.
const PATIENCE: Duration = Duration::from_secs(10);

/// Runs `body` on a throwaway node.
pub(crate) fn on_a_node<B: FnOnce() -> F, F: Future<Output = ()>>(body: B) {
    match run_on_a_node(test_name::<B>(), Namespaces::NETWORK) {
        Some(run) => drop(run.passed()),
        None => Runtime::new().expect("runtime").block_on(body()),
    }
}

pub(crate) fn config() -> Config {
    Config {
        cni_conf_dir: "/run/net.d".into(),
        cni_bin_dirs: vec!["/run/bin".into()],
        state_dir: "/run/pinion".into(),
        bridge: "pinion0".into(),
        subnet: "10.85.0.0/16".into(),
        subnet6: None,
        selectable: vec!["*".into(), "pinion".into()],
        definitions_dir: "/run/pinion-networks".into(),
        address_pools: network::DEFAULT_POOLS.map(str::to_owned).into(),
        overlay: None,
    }
}

pub(crate) fn open(config: Config) -> Network {
    Network::open(config).expect("the network opens")
}

pub(crate) fn tcp(host_port: u16, container_port: u16) -> PortMapping {
    PortMapping { protocol: Protocol::Tcp, container_port, host_port, host_ip: None }
}

/// An attached pod: its namespace, sandbox id and attachment.
pub(crate) struct Pod {
    pub(crate) ns: Namespace,
    pub(crate) id: String,
    pub(crate) attachment: Attachment,
}

impl Pod {
    pub(crate) fn ip(&self) -> IpAddr {
        self.attachment.ips[0]
    }
}

pub(crate) fn pod_ref(number: u32) -> PodRef {
    // Unique per process: plugin processes are identified by sandbox id, and nodes share a pid namespace.
    let sandbox = format!("{:032x}{number:032x}", std::process::id()).chars().rev().collect();
    PodRef { sandbox, name: format!("pod-{number}"), namespace: "default".into(), ..PodRef::default() }
}

pub(crate) fn ns_path(number: u32) -> PathBuf {
    Path::new("/run/netns").join(format!("pod-{number}"))
}

pub(crate) async fn try_attach(network: &Network, number: u32, ports: &[PortMapping]) -> Result<Pod, Error> {
    try_attach_with(network, number, false, ports).await
}

pub(crate) async fn try_attach_with(
    network: &Network,
    number: u32,
    require_free_ports: bool,
    ports: &[PortMapping],
) -> Result<Pod, Error> {
    attach_pod(network, number, &PodRef { require_free_ports, ..pod_ref(number) }, ports).await
}

/// Attaches a pod in a new namespace that is pinned as `pod-NUMBER`.
pub(crate) async fn attach_pod(
    network: &Network,
    number: u32,
    pod: &PodRef,
    ports: &[PortMapping],
) -> Result<Pod, Error> {
    let ns = Namespace::create().expect("namespace");
    let pins = netns::PinDir::open(Path::new("/run/netns/.store"), Path::new("/run/netns")).expect("pins");
    pins.unpin(&format!("pod-{number}")).expect("unpin");
    let path = pins.pin(&format!("pod-{number}"), &ns).expect("pin");
    let attachment = network.attach(pod, &ns, &path, ports).await?;
    Ok(Pod { ns, id: pod.sandbox.clone(), attachment })
}

/// Returns the pod of a number that selects networks by its annotation.
pub(crate) fn pod_with(number: u32, networks: &str) -> PodRef {
    PodRef { networks: Some(networks.to_owned()), ..pod_ref(number) }
}

pub(crate) async fn attach(network: &Network, number: u32, ports: &[PortMapping]) -> Pod {
    try_attach(network, number, ports).await.expect("the pod is attached")
}

/// Listens in a namespace and sends each client its own address.
pub(crate) fn serve(ns: &Namespace, address: &str) {
    let address: SocketAddr = address.parse().expect("address");
    let listener = ns.enter(move || TcpListener::bind(address).expect("bind")).expect("enter");
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let mut client = client.expect("accept");
            let peer = client.peer_addr().expect("peer").ip();
            write!(client, "{peer}").expect("response");
        }
    });
}

/// Connects from the node and returns the response: the client address that the server saw.
pub(crate) fn request(to: &str) -> std::io::Result<String> {
    let to: SocketAddr = to.parse().expect("address");
    let mut stream = TcpStream::connect_timeout(&to, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut response = String::new();
    stream.read_to_string(&mut response)?;
    Ok(response)
}

/// Like `request`, from a namespace.
pub(crate) fn request_from(ns: &Namespace, to: &str) -> std::io::Result<String> {
    let to = to.to_owned();
    ns.enter(move || request(&to)).expect("enter")
}

/// Creates an outside machine at 192.0.2.2 that has a route to the node's address 192.0.2.1, but none to pods.
pub(crate) fn outside() -> Namespace {
    let ns = Namespace::create().expect("namespace");
    let pins = netns::PinDir::open(Path::new("/run/netns/.store"), Path::new("/run/netns")).expect("pins");
    pins.pin("outside", &ns).expect("pin");
    shell("ip link add up0 type veth peer name eth0 netns outside");
    shell("ip addr add 192.0.2.1/24 dev up0 && ip link set up0 up");
    shell("ip -n outside addr add 192.0.2.2/24 dev eth0 && ip -n outside link set eth0 up");
    shell("ip addr add fd02::1/64 dev up0 nodad && ip -n outside addr add fd02::2/64 dev eth0 nodad");
    ns
}

/// Lists the files under a directory of the network's state, except lock files and `last_reserved_ip`.
pub(crate) fn files(directory: &str) -> Vec<String> {
    let paths =
        shell(&format!("cd /run/pinion/network 2>/dev/null && find {directory} -type f 2>/dev/null | sort || true"));
    let of_pods = |path: &&str| !path.ends_with("/lock") && !path.contains("last_reserved_ip");
    paths.lines().filter(of_pods).map(str::to_owned).collect()
}

/// Lists the node's ends of the pods' links.
pub(crate) fn pod_links() -> Vec<String> {
    let named =
        |line: &str| line.split([' ', '@']).nth(1).filter(|n| n.starts_with("pin") && n.len() == 14).map(str::to_owned);
    shell("ip -o link").lines().filter_map(named).collect()
}

/// Returns the map of ports, or an empty string if the table does not exist.
pub(crate) fn ports() -> String {
    if shell("nft list tables").contains("ip pinion") { shell("nft list map ip pinion ports") } else { String::new() }
}

/// Waits for another process.
pub(crate) async fn eventually(description: &str, is_done: impl FnMut() -> bool) {
    wait_until_with(tokio::time::sleep, description, PATIENCE, is_done).await;
}

/// Asserts that no pod left anything behind: links, leases, elements, records.
pub(crate) fn assert_clean() {
    assert_eq!(pod_links(), Vec::<String>::new());
    assert!(!ports().contains("elements"), "{}", ports());
    assert_eq!(files("leases"), Vec::<String>::new());
    assert_eq!(files("attachments"), Vec::<String>::new());
}
