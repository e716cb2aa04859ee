//! The kernel: version, features that were tried, modules.

use crate::{Node, Outcome, finding::Verdict};

/// The oldest kernel with all calls that the engine needs (`SO_NETNS_COOKIE`, mount_setattr, `CLONE_INTO_CGROUP`).
const OLDEST: (u32, u32) = (5, 14);
/// The oldest kernel that the tests run on.
const TESTED: (u32, u32) = (6, 1);
/// Modules, what needs them, and whether a pod cannot be created without it.
const MODULES: [(&str, &str, bool); 5] = [
    ("overlay", "root file systems", true),
    ("veth", "the network of pods", true),
    ("bridge", "the built-in network and the CNI plugin bridge", true),
    ("nf_tables", "the built-in network and host ports", true),
    ("br_netfilter", "kube-proxy in iptables mode", false),
];

pub(super) fn version(node: &Node) -> Vec<Verdict> {
    let release = node.kernel();
    let mut numbers = release.split(['.', '-', '+']).map_while(|part| part.parse::<u32>().ok());
    let (Some(major), Some(minor)) = (numbers.next(), numbers.next()) else {
        return vec![Verdict::notice(format!("the version of the kernel is not known ({release:?})"))];
    };
    vec![match (major, minor) {
        version if version < OLDEST => {
            let text = format!("Linux {release} is older than {}.{}", OLDEST.0, OLDEST.1);
            Verdict::problem(text).fix("install a newer kernel and boot it")
        }
        version if version < TESTED => Verdict::notice(format!("Linux {release} is older than those that are tested")),
        _ => Verdict::ok(format!("Linux {release}")),
    }]
}

/// Turns the result of a probe into a verdict.
fn tried(outcome: &Outcome, what: &str, failed: fn(String) -> Verdict, fix: &str) -> Verdict {
    match outcome {
        Outcome::Works => Verdict::ok(format!("{what} work")),
        Outcome::Fails(error) => failed(format!("{what} do not work: {error}")).fix(fix),
        Outcome::NotTried(reason) => Verdict::notice(format!("{what} were not tried: {reason}")),
    }
}

pub(super) fn processes(node: &Node) -> Vec<Verdict> {
    let seccomp = "allow the call in the seccomp profile of the container that this node is, or install a newer kernel";
    vec![
        tried(&node.probes.pidfd, "pidfds", Verdict::problem, seccomp),
        tried(&node.probes.clone3, "clone3 and pidfds of children", Verdict::problem, seccomp),
    ]
}

pub(super) fn overlay(node: &Node) -> Vec<Verdict> {
    vec![tried(
        &node.probes.overlay,
        "overlays on the file system of data_dir",
        Verdict::problem,
        "modprobe overlay; or set data_dir to a directory on ext4, XFS or Btrfs",
    )]
}

pub(super) fn id_mapped_mounts(node: &Node) -> Vec<Verdict> {
    vec![tried(
        &node.probes.id_map,
        "id-mapped mounts on the file system of data_dir",
        Verdict::warning,
        "set data_dir to a directory on a file system with id-mapped mounts (ext4, XFS, Btrfs); Linux 5.19 or newer",
    )]
}

pub(super) fn user_namespaces(node: &Node) -> Vec<Verdict> {
    let most = node.host.sysctl_number("user.max_user_namespaces");
    if most.is_some_and(|most| most < 128) {
        let text = format!("user.max_user_namespaces is {}", most.unwrap_or_default());
        return vec![Verdict::warning(text).fix("sysctl -w user.max_user_namespaces=15000")];
    }
    vec![tried(
        &node.probes.user_namespace,
        "user namespaces",
        Verdict::warning,
        "sysctl -w user.max_user_namespaces=15000",
    )]
}

pub(super) fn seccomp(node: &Node) -> Vec<Verdict> {
    let actions = node.host.sysctl("kernel.seccomp.actions_avail").unwrap_or_default();
    let mut verdicts = vec![tried(
        &node.probes.seccomp,
        "seccomp filters",
        Verdict::problem,
        "boot a kernel with CONFIG_SECCOMP_FILTER",
    )];
    for (action, use_) in [("errno", "the default profile"), ("user_notif", "profiles with SCMP_ACT_NOTIFY")] {
        if !actions.is_empty() && !actions.split_whitespace().any(|name| name == action) {
            verdicts.push(Verdict::warning(format!("the kernel lacks the seccomp action {action}, which {use_} need")));
        }
    }
    verdicts
}

pub(super) fn nftables(node: &Node) -> Vec<Verdict> {
    vec![tried(&node.probes.nftables, "nftables", Verdict::problem, "modprobe nf_tables")]
}

pub(super) fn bpf_devices(node: &Node) -> Vec<Verdict> {
    if !node.has_unified_cgroups() {
        return vec![Verdict::ok("not needed: devices are limited by the devices controller of cgroup v1")];
    }
    vec![tried(&node.probes.bpf, "BPF programs for devices", Verdict::problem, "boot a kernel with CONFIG_CGROUP_BPF")]
}

pub(super) fn modules(node: &Node) -> Vec<Verdict> {
    let installed = node.host.read(format!("/lib/modules/{}/modules.dep", node.kernel())).unwrap_or_default();
    let mut verdicts = Vec::new();
    for (name, use_, is_needed) in MODULES {
        if node.has_module(name) {
            continue;
        }
        let file = format!("/{name}.ko");
        let path = |line: &str| line.split(':').next().unwrap_or_default().replace('-', "_");
        let is_installed = installed.lines().any(|line| path(line).contains(&file));
        let load = format!("modprobe {name} && echo {name} > /etc/modules-load.d/{name}.conf");
        verdicts.push(match (is_installed, works(node, name)) {
            (_, true) => continue,
            // The kernel loads the others on demand; nothing requests br_netfilter.
            (true, _) if is_needed => Verdict::ok(format!("the module {name} is installed and loaded on demand")),
            (true, _) => Verdict::warning(format!("the module {name} is not loaded ({use_})")).fix(load),
            (false, _) if is_needed => {
                Verdict::warning(format!("the module {name} is neither loaded nor installed ({use_})"))
                    .fix("install the modules of the running kernel, or boot a kernel that contains it")
            }
            (false, _) => Verdict::notice(format!("the kernel has no module {name} ({use_})")),
        });
    }
    if verdicts.is_empty() {
        verdicts.push(Verdict::ok("all modules are loaded or built in"));
    }
    verdicts
}

/// Whether a probe proved that the kernel has what the module provides, as one without modules does.
fn works(node: &Node, module: &str) -> bool {
    match module {
        "overlay" => node.probes.overlay == Outcome::Works,
        "nf_tables" => node.probes.nftables == Outcome::Works,
        "veth" => node.probes.veth == Outcome::Works,
        "bridge" => node.probes.bridge == Outcome::Works,
        _ => false,
    }
}

pub(super) fn boot(node: &Node) -> Vec<Verdict> {
    let release = node.kernel();
    let others = node.host.list("/lib/modules");
    if !others.is_empty() && !others.contains(&release) {
        let text =
            format!("the modules of the running kernel {release} are not installed; installed: {}", others.join(", "));
        return vec![Verdict::warning(text).fix("reboot")];
    }
    vec![match node.host.exists("/run/reboot-required") {
        true => Verdict::notice("an update requires a reboot (/run/reboot-required)").fix("reboot"),
        false => Verdict::ok("no reboot is pending"),
    }]
}
