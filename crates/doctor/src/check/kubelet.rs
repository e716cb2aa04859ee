//! The kubelet's own configuration.

use crate::{Node, finding::Verdict};

/// Flags that the kubelet no longer has, and the first version without them.
const REMOVED: [(&str, (u32, u32)); 9] = [
    ("network-plugin", (1, 24)),
    ("cni-conf-dir", (1, 24)),
    ("cni-bin-dir", (1, 24)),
    ("cni-cache-dir", (1, 24)),
    ("network-plugin-mtu", (1, 24)),
    ("docker-endpoint", (1, 24)),
    ("image-pull-progress-deadline", (1, 24)),
    ("container-runtime", (1, 27)),
    ("pod-infra-container-image", (1, 35)),
];

pub(super) fn config(node: &Node) -> Vec<Verdict> {
    let Some(kubelet) = &node.kubelet else {
        return vec![Verdict::notice(
            "the node does not have a kubelet: neither a process, kubelet.service nor /var/lib/kubelet/config.yaml",
        )];
    };
    if !kubelet.errors.is_empty() {
        return kubelet.errors.iter().map(Verdict::problem).collect();
    }
    let version = kubelet.version.map_or(String::new(), |(major, minor)| format!(" {major}.{minor}"));
    let state = kubelet.pid.map_or("not running".to_owned(), |pid| format!("pid {pid}"));
    let files: Vec<String> = kubelet.files.iter().map(|file| file.display().to_string()).collect();
    vec![Verdict::ok(format!("kubelet{version} ({state}); files: {}", files.join(", ")))]
}

pub(super) fn cgroup_v1(node: &Node) -> Vec<Verdict> {
    let (Some(kubelet), false) = (&node.kubelet, node.has_unified_cgroups()) else {
        return vec![Verdict::ok("not needed: the node has cgroup v2 or no kubelet")];
    };
    let fix = format!("set failCgroupV1: false in {}", kubelet.file().display());
    vec![match (kubelet.config(&["failCgroupV1"]).as_deref(), kubelet.is_at_least((1, 35))) {
        (Some("false"), _) => Verdict::ok("failCgroupV1 is false"),
        (Some("true"), _) | (_, Some(true)) => Verdict::problem("the kubelet refuses to start on cgroup v1").fix(fix),
        (_, Some(false)) => Verdict::notice("from 1.35 on the kubelet refuses to start on cgroup v1").fix(fix),
        (_, None) => Verdict::warning("a kubelet from 1.35 on refuses to start on cgroup v1").fix(fix),
    }]
}

pub(super) fn swap(node: &Node) -> Vec<Verdict> {
    let devices = node.host.read("/proc/swaps").map_or(0, |text| text.lines().skip(1).count());
    let (Some(kubelet), true) = (&node.kubelet, devices > 0) else {
        return vec![Verdict::ok("not needed: the node has no swap or no kubelet")];
    };
    let fix = format!("set failSwapOn: false in {}, or: swapoff -a", kubelet.file().display());
    let behavior = kubelet.config(&["memorySwap", "swapBehavior"]).unwrap_or_default();
    vec![match kubelet.boolean("fail-swap-on", "failSwapOn", true) {
        true => Verdict::problem("the node has swap, and the kubelet refuses to start (failSwapOn)").fix(fix),
        false if behavior == "LimitedSwap" && !node.has_unified_cgroups() => {
            Verdict::warning("swapBehavior LimitedSwap needs cgroup v2: pods get no swap")
        }
        false => Verdict::ok("the node has swap, which the kubelet accepts"),
    }]
}

pub(super) fn flags(node: &Node) -> Vec<Verdict> {
    let Some(kubelet) = &node.kubelet else { return vec![Verdict::ok("the node does not have a kubelet")] };
    let mut verdicts = Vec::new();
    for (flag, since) in REMOVED.iter().filter(|(flag, _)| kubelet.flags.get(flag).is_some()) {
        let text = format!("--{flag} was removed in {}.{}", since.0, since.1);
        let fix = "remove it from /var/lib/kubelet/kubeadm-flags.env, /etc/default/kubelet or the unit";
        verdicts.push(match kubelet.is_at_least(*since) {
            Some(true) => Verdict::problem(text).fix(fix),
            Some(false) => Verdict::notice(format!("{text}; it has no effect with Pinion")).fix(fix),
            None => Verdict::warning(text).fix(fix),
        });
    }
    if verdicts.is_empty() { vec![Verdict::ok("no flag that was removed is used")] } else { verdicts }
}

pub(super) fn resource_managers(node: &Node) -> Vec<Verdict> {
    let Some(kubelet) = &node.kubelet else { return vec![Verdict::ok("the node does not have a kubelet")] };
    let managers = [
        ("cpu-manager-policy", "cpuManagerPolicy", "none", "cpu_manager_state"),
        ("memory-manager-policy", "memoryManagerPolicy", "None", "memory_manager_state"),
    ];
    let root = kubelet.flags.get("root-dir").unwrap_or("/var/lib/kubelet");
    let mut verdicts = Vec::new();
    for (flag, key, default, file) in managers {
        let policy = kubelet.setting(flag, key).unwrap_or_else(|| default.to_owned());
        let path = format!("{root}/{file}");
        let state = node.host.read(&path).and_then(|text| serde_json::from_str::<serde_json::Value>(&text).ok());
        let stored = state.as_ref().and_then(|state| state.get("policyName")).and_then(|name| name.as_str());
        verdicts.push(match stored {
            Some(stored) if stored != policy => {
                Verdict::problem(format!("{key} is {policy}, but {path} has {stored}")).fix(format!("rm {path}"))
            }
            _ => Verdict::ok(format!("{key} is {policy}")),
        });
    }
    verdicts
}

pub(super) fn subordinate_ids(node: &Node) -> Vec<Verdict> {
    if node.kubelet.is_none() {
        return vec![Verdict::ok("the node does not have a kubelet")];
    }
    let mut verdicts = Vec::new();
    for file in ["/etc/subuid", "/etc/subgid"] {
        let text = node.host.read(file).unwrap_or_default();
        let ranges: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("kubelet:")).collect();
        let (start, length) = match ranges.first().and_then(|range| range.split_once(':')) {
            None => continue,
            Some((start, length)) => (start.trim().parse::<u64>(), length.trim().parse::<u64>()),
        };
        let is_valid = matches!((&start, &length), (Ok(start), Ok(length))
            if *start >= 65_536 && start % 65_536 == 0 && *length >= 65_536 && length % 65_536 == 0);
        if !is_valid || ranges.len() > 1 {
            let text = format!(
                "{file}: the range of kubelet must be one, start at a multiple of 65536, and have such a length"
            );
            verdicts.push(Verdict::problem(text).fix(format!("set kubelet:65536:7208960 in {file}")));
        }
    }
    if verdicts.is_empty() { vec![Verdict::ok("the ranges are valid, or the kubelet uses its own")] } else { verdicts }
}
