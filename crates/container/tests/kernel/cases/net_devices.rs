//! Network devices that are moved to the container, from a temporary network namespace.

use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{CWD, Mode, OFlags, openat},
    net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with},
    thread::{ThreadNameSpaceType, UnshareFlags, move_into_thread_name_spaces},
};

use crate::{Case, bundle, node::Node};

pub(crate) const CASES: &[Case] =
    testbed::cases![moved_with_its_addresses, refused_devices, moved_into_a_user_namespace];

/// A new network namespace with two pairs of devices; one of the first pair has addresses.
struct Network {
    before: OwnedFd,
}

impl Network {
    fn new() -> Self {
        let before = openat(CWD, "/proc/self/ns/net", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).expect("own");
        syscall::clone::unshare_process(UnshareFlags::NEWNET).expect("a network namespace");
        for name in ["given0", "given1"] {
            make_pair(name);
        }
        // Index 1 is lo, 2 the peer of the first device, 3 the first device. One address is of global scope, one of
        // link scope.
        add_address(3, [10, 9, 8, 7], 0);
        add_address(3, [169, 254, 1, 1], 253);
        Self { before }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        move_into_thread_name_spaces(self.before.as_fd(), ThreadNameSpaceType::NETWORK).expect("back");
    }
}

/// Sends a netlink request of this kind (struct and attributes in `body`), which must succeed.
fn request(kind: u16, body: &[u8]) {
    let mut message = vec![0; 16];
    message[0..4].copy_from_slice(&(16 + body.len() as u32).to_ne_bytes());
    message[4..6].copy_from_slice(&kind.to_ne_bytes());
    message[6..8].copy_from_slice(&0x605u16.to_ne_bytes());
    message.extend_from_slice(body);
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None).expect("socket");
    send(&socket, &message, SendFlags::empty()).expect("send");
    let mut reply = [0u8; 4096];
    recv(&socket, &mut reply[..], RecvFlags::empty()).expect("recv");
    assert_eq!(reply[16..20], [0; 4], "netlink refused");
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = (4 + value.len() as u16).to_ne_bytes().to_vec();
    bytes.extend_from_slice(&kind.to_ne_bytes());
    bytes.extend_from_slice(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn make_pair(name: &str) {
    let name = attribute(3, &[name.as_bytes(), &[0]].concat());
    request(16, &[vec![0; 16], name, attribute(18, &attribute(1, b"veth\0"))].concat());
}

fn add_address(index: u32, address: [u8; 4], scope: u8) {
    let head = [&[2, 24, 0, scope][..], &index.to_ne_bytes()].concat();
    request(20, &[head, attribute(1, &address), attribute(2, &address)].concat());
}

fn devices(spec: &mut oci::Spec, json: serde_json::Value) {
    spec.linux.as_mut().expect("linux").net_devices = serde_json::from_value(json).expect("devices");
}

fn links() -> String {
    std::fs::read_to_string("/proc/self/net/dev").expect("devices")
}

fn moved_with_its_addresses(node: &Node) {
    let network = Network::new();
    let out = node.shell("ip -o addr; ip -o link", |spec| {
        devices(spec, serde_json::json!({"given0": {"name": "eth0"}, "given1": {}}));
    });
    assert!(out.stdout.contains("eth0    inet 10.9.8.7/24"), "{out:?}");
    assert!(!out.stdout.contains("169.254.1.1"), "{out:?}");
    // The kernel may or may not have noticed yet that the other end is down.
    let flags = out.stdout.split_once("given1@if4: <").map(|(_, rest)| rest.split('>').next().unwrap_or(rest));
    assert!(flags.is_some_and(|flags| flags.split(',').any(|flag| flag == "UP")), "{out:?}");
    assert!(!links().contains("given"), "{}", links());
    drop(network);
}

fn moved_into_a_user_namespace(node: &Node) {
    let network = Network::new();
    let out = node.shell("ip -o addr", |spec| {
        devices(spec, serde_json::json!({"given0": {"name": "eth0"}}));
        let linux = spec.linux.as_mut().expect("linux");
        linux.namespaces.push(oci::Namespace { kind: oci::NamespaceType::User, path: None });
        let ids = vec![oci::IdMapping { container_id: 0, host_id: 100_000, size: 65536 }];
        (linux.uid_mappings, linux.gid_mappings) = (ids.clone(), ids);
    });
    assert!(out.stdout.contains("eth0    inet 10.9.8.7/24"), "{out:?}");
    drop(network);
}

fn refused_devices(node: &Node) {
    let network = Network::new();
    let mut spec = bundle::spec(&["/bin/true"]);
    devices(&mut spec, serde_json::json!({"absent0": {}}));
    let error = node.create(spec, node.inputs()).expect_err("the device does not exist");
    assert_eq!(
        error.message(),
        "move the network device \"absent0\" into the container: find it in the runtime's network namespace: No such device"
    );
    let mut spec = bundle::spec(&["/bin/true"]);
    devices(&mut spec, serde_json::json!({"given0": {"name": "lo"}}));
    let error = node.create(spec, node.inputs()).expect_err("lo exists");
    assert!(error.message().ends_with("name it \"lo\" inside: File exists"), "{error}");
    assert!(links().contains("given0"), "{}", links());
    for wrong in [
        serde_json::json!({"given0": {"name": "a/b"}}),
        serde_json::json!({"given0": {"name": "much-too-long-a-name"}}),
        serde_json::json!({"given0": {"name": "x"}, "given1": {"name": "x"}}),
    ] {
        let mut spec = bundle::spec(&["/bin/true"]);
        devices(&mut spec, wrong);
        let error = node.create(spec, node.inputs()).expect_err("a wrong name");
        assert!(error.message().starts_with("linux.netDevices: "), "{error}");
    }
    let mut spec = bundle::spec(&["/bin/true"]);
    devices(&mut spec, serde_json::json!({"given0": {}}));
    let linux = spec.linux.as_mut().expect("linux");
    linux.namespaces.retain(|namespace| namespace.kind != oci::NamespaceType::Network);
    let error = node.create(spec, node.inputs()).expect_err("the host's network");
    assert!(error.message().contains("no network namespace"), "{error}");
    drop(network);
}
