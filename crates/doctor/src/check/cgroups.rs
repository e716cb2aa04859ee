//! Control groups.

use crate::{CgroupDriver, Node, finding::Verdict, systemd};

/// Controllers that limits of pods need.
const NEEDED: [&str; 4] = ["cpu", "cpuset", "memory", "pids"];

/// How the hierarchies are mounted.
fn mode_of(node: &Node) -> &'static str {
    let has_v1 = node.mounts.iter().any(|mount| mount.kind == "cgroup");
    match (node.has_unified_cgroups(), has_v1, node.mounts.iter().any(|mount| mount.kind == "cgroup2")) {
        (true, ..) => "v2",
        (false, true, true) => "hybrid (controllers in v1, and a v2 tree)",
        (false, true, false) => "v1",
        (false, false, _) => "none",
    }
}

pub(super) fn mode(node: &Node) -> Vec<Verdict> {
    vec![match mode_of(node) {
        "v2" => Verdict::ok("cgroup v2"),
        "none" => Verdict::problem("no cgroup hierarchy is mounted below /sys/fs/cgroup")
            .fix("mount -t cgroup2 cgroup2 /sys/fs/cgroup"),
        mode => Verdict::notice(format!("cgroup {mode}"))
            .fix("add systemd.unified_cgroup_hierarchy=1 to the kernel command line and reboot"),
    }]
}

/// Returns the controllers that can be used.
fn available(node: &Node) -> Vec<String> {
    if let Some(controllers) = node.host.read("/sys/fs/cgroup/cgroup.controllers") {
        return controllers.split_whitespace().map(str::to_owned).collect();
    }
    let v1 = node.mounts.iter().filter(|mount| mount.kind == "cgroup");
    v1.flat_map(|mount| mount.options.split(',').map(str::to_owned)).collect()
}

pub(super) fn controllers(node: &Node) -> Vec<Verdict> {
    let available = available(node);
    let missing: Vec<&str> = NEEDED.into_iter().filter(|name| !available.iter().any(|own| own == name)).collect();
    vec![match missing.is_empty() {
        true => Verdict::ok(format!("controllers: {}", NEEDED.join(", "))),
        false => Verdict::problem(format!("controllers that are missing: {}", missing.join(", ")))
            .fix(format!("add {} to the kernel command line and reboot", enable(&missing))),
    }]
}

fn enable(missing: &[&str]) -> String {
    let parameters: Vec<String> = missing.iter().map(|name| format!("cgroup_enable={name}")).collect();
    parameters.join(" ")
}

/// Returns why Pinion cannot use the systemd driver on this node.
fn obstacle_to_systemd(node: &Node) -> Option<&'static str> {
    // Named trees have no controllers.
    let has_v1 = node.mounts.iter().any(|mount| mount.kind == "cgroup" && !mount.options.contains("name="));
    match (systemd::is_init(&node.host), node.has_unified_cgroups() && !has_v1) {
        (false, _) => Some("systemd is not running"),
        (true, false) => Some("cgroup v1 is in use"),
        (true, true) => None,
    }
}

pub(super) fn driver(node: &Node) -> Vec<Verdict> {
    let own = match (node.settings.cgroup_driver, obstacle_to_systemd(node)) {
        (CgroupDriver::Systemd, Some(obstacle)) => {
            let text = format!("cgroup.driver is systemd, but {obstacle}: the daemon does not start");
            return vec![Verdict::problem(text).fix("set cgroup.driver to \"cgroupfs\" in Pinion's configuration")];
        }
        (CgroupDriver::Systemd, None) | (CgroupDriver::Auto, None) => "systemd",
        (CgroupDriver::Cgroupfs, _) | (CgroupDriver::Auto, Some(_)) => "cgroupfs",
    };
    let Some(kubelet) = &node.kubelet else {
        return vec![Verdict::ok(format!("Pinion uses {own}; the node does not have a kubelet"))];
    };
    let configured = kubelet.setting("cgroup-driver", "cgroupDriver");
    let follows = kubelet.gate("KubeletCgroupDriverFromCRI").unwrap_or(true);
    let fix = format!("set cgroupDriver: {own} in {}", kubelet.file().display());
    vec![match (configured.as_deref(), kubelet.is_at_least((1, 31))) {
        (Some(driver), _) if driver == own => Verdict::ok(format!("both use {own}")),
        (None, Some(true)) if follows => Verdict::ok(format!("the kubelet gets {own} from Pinion")),
        (Some(driver), Some(true)) if follows => {
            let text = format!("cgroupDriver is {driver}, Pinion uses {own}: the kubelet uses what Pinion reports ({own})");
            Verdict::notice(text).fix(fix)
        }
        (Some(driver), Some(_)) => Verdict::problem(format!("cgroupDriver is {driver}, Pinion uses {own}")).fix(fix),
        (Some(driver), None) => Verdict::warning(format!(
            "cgroupDriver is {driver}, Pinion uses {own}; a kubelet from 1.31 on uses what Pinion reports, an older one does not work"
        ))
        .fix(fix),
        // The kubelet's default.
        (None, _) if own == "cgroupfs" => Verdict::ok("both use cgroupfs"),
        (None, _) => Verdict::warning(format!("cgroupDriver is not set (cgroupfs), Pinion uses {own}")).fix(fix),
    }]
}
