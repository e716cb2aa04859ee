//! Addresses, firewall rules and ports of the node.

use std::net::{IpAddr, Ipv4Addr};

use crate::{DaemonState, Node, finding::Verdict};

/// Ports that the kubelet listens on: the keys of its configuration and their defaults.
const KUBELET_PORTS: [(&str, &str, u16); 2] = [("port", "port", 10250), ("healthz-port", "healthzPort", 10248)];

/// A route of the node: interface, network and mask.
fn routes(node: &Node) -> Vec<(String, u32, u32)> {
    let text = node.host.read("/proc/net/route").unwrap_or_default();
    let number =
        |field: Option<&&str>| field.and_then(|field| u32::from_str_radix(field, 16).ok()).map(u32::swap_bytes);
    let parse = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        Some(((*fields.first()?).to_owned(), number(fields.get(1))?, number(fields.get(7))?))
    };
    text.lines().skip(1).filter_map(parse).collect()
}

pub(super) fn subnet(node: &Node) -> Vec<Verdict> {
    if !super::cni::files(node).is_empty() {
        return vec![Verdict::ok("not needed: the CNI configuration determines the addresses of pods")];
    }
    let mut verdicts = Vec::new();
    for (address, length) in &node.settings.subnets {
        let IpAddr::V4(address) = address else { continue };
        let mask = u32::MAX.checked_shl(32 - u32::from(*length)).unwrap_or(0);
        let overlaps = |network: u32, other: u32| (u32::from(*address) ^ network) & (mask & other) == 0;
        let routes =
            routes(node).into_iter().filter(|(interface, _, other)| *other != 0 && *interface != node.settings.bridge);
        for (interface, network, other) in routes.filter(|(_, network, other)| overlaps(*network, *other)) {
            let route = format!("{}/{} on {interface}", Ipv4Addr::from(network), other.count_ones());
            let text = format!("network.subnet {address}/{length} overlaps with {route}");
            verdicts.push(Verdict::problem(text).fix("set network.subnet to a free subnet; systemctl restart pinion"));
        }
    }
    if verdicts.is_empty() { vec![Verdict::ok("the subnets of pods are free")] } else { verdicts }
}

pub(super) fn forwarding_rules(node: &Node) -> Vec<Verdict> {
    let Some(rules) = &node.rules else { return vec![Verdict::ok("iptables is not installed")] };
    let bridge = &node.settings.bridge;
    let accepts = |line: &str| line.contains(bridge.as_str()) && line.ends_with("-j ACCEPT");
    let drops = rules.lines().any(|line| line.starts_with(":FORWARD DROP"));
    vec![match drops && !rules.lines().any(accepts) {
        false => Verdict::ok("the FORWARD chain accepts by default, or accepts the traffic of pods"),
        true => Verdict::warning("the FORWARD chain of iptables drops by default")
            .fix(format!("iptables -I FORWARD -i {bridge} -j ACCEPT && iptables -I FORWARD -o {bridge} -j ACCEPT")),
    }]
}

/// Returns the TCP ports that programs listen on.
fn listening(node: &Node) -> Vec<u16> {
    let mut ports = Vec::new();
    for file in ["/proc/net/tcp", "/proc/net/tcp6"] {
        let text = node.host.read(file).unwrap_or_default();
        ports.extend(text.lines().skip(1).filter_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let port = fields.get(1)?.rsplit(':').next()?;
            // TCP_LISTEN
            (*fields.get(3)? == "0A").then(|| u16::from_str_radix(port, 16).ok()).flatten()
        }));
    }
    ports
}

pub(super) fn ports(node: &Node) -> Vec<Verdict> {
    let listening = listening(node);
    let mut verdicts = Vec::new();
    if let Some(kubelet) = node.kubelet.as_ref().filter(|kubelet| kubelet.pid.is_none()) {
        for (flag, key, default) in KUBELET_PORTS {
            let port = kubelet.setting(flag, key).map_or(Some(default), |port| port.parse().ok());
            if port.is_some_and(|port| listening.contains(&port)) {
                let port = port.unwrap_or(default);
                let text = format!("another program listens on port {port} of the kubelet ({key})");
                verdicts.push(Verdict::problem(text).fix(format!("ss -tlnp sport = :{port}")));
            }
        }
    }
    if matches!(node.daemon, DaemonState::Unreachable(_)) {
        for (key, address) in node.settings.listeners.iter().filter(|(_, address)| listening.contains(&address.port()))
        {
            let text = format!("another program listens on port {} ({key})", address.port());
            verdicts.push(Verdict::problem(text).fix(format!("ss -tlnp sport = :{}", address.port())));
        }
    }
    if verdicts.is_empty() {
        vec![Verdict::ok("the ports are free, or used by the kubelet and the daemon")]
    } else {
        verdicts
    }
}
