//! Kernel parameters.

use crate::{Node, finding::Verdict};

/// What the kubelet sets, and requires with protectKernelDefaults.
const KERNEL_DEFAULTS: [(&str, u64); 6] = [
    ("vm.overcommit_memory", 1),
    ("vm.panic_on_oom", 0),
    ("kernel.panic", 10),
    ("kernel.panic_on_oops", 1),
    ("kernel.keys.root_maxkeys", 1_000_000),
    ("kernel.keys.root_maxbytes", 25_000_000),
];

fn set(name: &str, value: u64) -> String {
    format!("echo '{name} = {value}' > /etc/sysctl.d/90-{}.conf && sysctl --system", name.replace(['.', '_'], "-"))
}

/// Checks that a parameter is at least `least`. A parameter that the kernel does not have is not a finding.
fn at_least(node: &Node, name: &str, least: u64, found: fn(String) -> Verdict) -> Verdict {
    match node.host.sysctl_number(name) {
        Some(value) if value < least => found(format!("{name} is {value}, less than {least}")).fix(set(name, least)),
        Some(value) => Verdict::ok(format!("{name} is {value}")),
        None => Verdict::ok(format!("{name} does not exist on this node")),
    }
}

pub(super) fn ip_forward(node: &Node) -> Vec<Verdict> {
    let has_cni = !super::cni::files(node).is_empty();
    vec![match (node.host.sysctl_number("net.ipv4.ip_forward"), has_cni) {
        (Some(1), _) => Verdict::ok("net.ipv4.ip_forward is 1"),
        (Some(_), false) => Verdict::ok("net.ipv4.ip_forward is 0; the built-in network sets it with the first pod"),
        (Some(_), true) => Verdict::warning("net.ipv4.ip_forward is 0").fix(set("net.ipv4.ip_forward", 1)),
        (None, _) => Verdict::notice("net.ipv4.ip_forward cannot be read"),
    }]
}

pub(super) fn bridge_netfilter(node: &Node) -> Vec<Verdict> {
    let names = ["net.bridge.bridge-nf-call-iptables", "net.bridge.bridge-nf-call-ip6tables"];
    let verdicts: Vec<Verdict> = names
        .iter()
        .filter(|name| node.host.sysctl_number(name).is_some_and(|value| value != 1))
        .map(|name| Verdict::warning(format!("{name} is 0")).fix(set(name, 1)))
        .collect();
    match (verdicts.is_empty(), node.host.exists("/proc/sys/net/bridge/bridge-nf-call-iptables")) {
        (false, _) => verdicts,
        (true, true) => vec![Verdict::ok("bridges pass traffic to netfilter")],
        (true, false) => vec![
            Verdict::notice("br_netfilter is not loaded; only kube-proxy in iptables or ipvs mode needs it")
                .fix("modprobe br_netfilter && echo br_netfilter > /etc/modules-load.d/br_netfilter.conf"),
        ],
    }
}

pub(super) fn inotify(node: &Node) -> Vec<Verdict> {
    vec![
        at_least(node, "fs.inotify.max_user_instances", 512, Verdict::notice),
        at_least(node, "fs.inotify.max_user_watches", 65_536, Verdict::notice),
    ]
}

pub(super) fn pid_max(node: &Node) -> Vec<Verdict> {
    vec![
        at_least(node, "kernel.pid_max", 65_536, Verdict::warning),
        at_least(node, "kernel.threads-max", 16_384, Verdict::warning),
    ]
}

pub(super) fn open_files(node: &Node) -> Vec<Verdict> {
    vec![at_least(node, "fs.file-max", 262_144, Verdict::warning)]
}

pub(super) fn kernel_defaults(node: &Node) -> Vec<Verdict> {
    let protects =
        |kubelet: &crate::Kubelet| kubelet.boolean("protect-kernel-defaults", "protectKernelDefaults", false);
    if !node.kubelet.as_ref().is_some_and(protects) {
        return vec![Verdict::ok("not needed: protectKernelDefaults is not set, the kubelet sets them itself")];
    }
    let wrong = KERNEL_DEFAULTS.iter().filter_map(|(name, value)| {
        let current = node.host.sysctl_number(name)?;
        (current != *value)
            .then(|| Verdict::problem(format!("{name} is {current}, not {value}")).fix(set(name, *value)))
    });
    let verdicts: Vec<Verdict> = wrong.collect();
    if verdicts.is_empty() { vec![Verdict::ok("all have the values that the kubelet requires")] } else { verdicts }
}
