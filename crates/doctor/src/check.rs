//! The checks: a table of ids, reasons and functions of a [`Node`].

mod cgroups;
mod clock;
mod cni;
mod engines;
mod kernel;
mod kubelet;
mod limits;
mod network;
mod pinion;
mod runtime;
mod security;
mod storage;
mod sysctls;

use crate::{Finding, Node, Report, finding::Verdict};

/// A check.
pub struct Check {
    /// Its name, which does not change between versions.
    pub id: &'static str,
    /// Why it matters.
    pub reason: &'static str,
    run: fn(&Node) -> Vec<Verdict>,
}

impl std::fmt::Debug for Check {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.id)
    }
}

const fn check(id: &'static str, reason: &'static str, run: fn(&Node) -> Vec<Verdict>) -> Check {
    Check { id, reason, run }
}

/// All checks, in the order of the report.
pub const CHECKS: &[Check] = &[
    check("pinion.config", "The daemon does not start with an invalid configuration.", pinion::config),
    check("pinion.daemon", "The kubelet needs the daemon's socket.", pinion::daemon),
    check(
        "pinion.monitor",
        "The daemon starts the monitor program, which is the parent of all containers.",
        pinion::monitor,
    ),
    check("pinion.unit", "After a reboot only an enabled unit starts the daemon.", pinion::unit),
    check("kernel.version", "Older kernels lack system calls that the engine uses.", kernel::version),
    check("kernel.processes", "Containers are created with clone3(2) and watched through pidfds.", kernel::processes),
    check("kernel.overlay", "The root file system of a container is an overlay.", kernel::overlay),
    check(
        "kernel.id-mapped-mounts",
        "Pods with user namespaces (hostUsers: false) use id-mapped layers and volumes.",
        kernel::id_mapped_mounts,
    ),
    check("kernel.user-namespaces", "Pods with hostUsers: false need a user namespace each.", kernel::user_namespaces),
    check("kernel.seccomp", "The profile RuntimeDefault is a seccomp filter.", kernel::seccomp),
    check("kernel.nftables", "The built-in network and host ports are nftables rules.", kernel::nftables),
    check(
        "kernel.bpf-devices",
        "On cgroup v2 a BPF program decides which devices a container may open.",
        kernel::bpf_devices,
    ),
    check(
        "kernel.modules",
        "A module that is neither loaded nor installed cannot be loaded when it is needed.",
        kernel::modules,
    ),
    check("sysctl.ip-forward", "Without forwarding, pods reach only their own node.", sysctls::ip_forward),
    check(
        "sysctl.bridge-netfilter",
        "kube-proxy in iptables mode translates addresses of traffic between pods on one bridge only if the bridge passes it to netfilter.",
        sysctls::bridge_netfilter,
    ),
    check(
        "sysctl.inotify",
        "Programs in pods share root's inotify limits and fail with \"too many open files\".",
        sysctls::inotify,
    ),
    check("sysctl.pid-max", "All pods share the process ids of the node.", sysctls::pid_max),
    check("sysctl.open-files", "All pods share the node's limit of open files.", sysctls::open_files),
    check(
        "sysctl.kernel-defaults",
        "With protectKernelDefaults the kubelet exits if a sysctl differs from its defaults.",
        sysctls::kernel_defaults,
    ),
    check(
        "cgroup.mode",
        "cgroup v1 is deprecated in Kubernetes; memory QoS, swap and PSI need cgroup v2.",
        cgroups::mode,
    ),
    check(
        "cgroup.controllers",
        "Limits of pods need the controllers cpu, cpuset, memory and pids.",
        cgroups::controllers,
    ),
    check(
        "cgroup.driver",
        "With two drivers the pods' groups are in two places, and limits do not apply.",
        cgroups::driver,
    ),
    check(
        "kubelet.config",
        "The kubelet does not start with an invalid configuration, and these checks need its settings.",
        kubelet::config,
    ),
    check("kubelet.endpoint", "The kubelet uses the runtime that its endpoint names.", runtime::endpoint),
    check("kubelet.image-endpoint", "The kubelet would pull images into another engine.", runtime::image_endpoint),
    check("kubelet.unit", "A kubelet whose unit requires another engine stops when that is stopped.", runtime::unit),
    check(
        "kubelet.metrics",
        "Without the gate or the socket the kubelet's cAdvisor does not recognize Pinion's containers: /metrics/cadvisor lacks them, and /stats/summary lacks the network and the number of processes of pods.",
        runtime::metrics,
    ),
    check(
        "kubelet.cgroup-v1",
        "From 1.35 on the kubelet refuses to start on cgroup v1 unless failCgroupV1 is false.",
        kubelet::cgroup_v1,
    ),
    check("kubelet.swap", "By default the kubelet refuses to start on a node with swap.", kubelet::swap),
    check("kubelet.flags", "The kubelet exits with an error for a flag that was removed.", kubelet::flags),
    check(
        "kubelet.resource-managers",
        "The kubelet refuses to start if the policy of its CPU or memory manager differs from its state file.",
        kubelet::resource_managers,
    ),
    check(
        "kubelet.subordinate-ids",
        "The kubelet takes the ids of user namespaces from /etc/subuid and /etc/subgid.",
        kubelet::subordinate_ids,
    ),
    check("crictl.config", "crictl without --runtime-endpoint talks to another engine.", runtime::crictl),
    check("cni.config", "The first CNI configuration by name is the network of all pods.", cni::config),
    check("cni.plugins", "A pod cannot be created if a plugin of its network is missing.", cni::plugins),
    check("network.subnet", "Addresses of pods that are also in use elsewhere are unreachable.", network::subnet),
    check(
        "network.forwarding-rules",
        "A FORWARD chain that drops by default (Docker's, firewalld's) drops the traffic of pods.",
        network::forwarding_rules,
    ),
    check(
        "network.ports",
        "A program that already listens on a port keeps the kubelet or the daemon from starting.",
        network::ports,
    ),
    check(
        "engine.containerd",
        "Two engines on a node use twice the memory, and pods of the old one keep addresses and ports.",
        engines::containerd,
    ),
    check(
        "engine.crio",
        "Two engines on a node use twice the memory, and pods of the old one keep addresses and ports.",
        engines::crio,
    ),
    check(
        "engine.docker",
        "Docker changes the node's firewall and keeps containers that no kubelet knows.",
        engines::docker,
    ),
    check(
        "engine.cri-dockerd",
        "Two engines on a node use twice the memory, and pods of the old one keep addresses and ports.",
        engines::cri_dockerd,
    ),
    check("engine.interfaces", "A bridge of another engine keeps its subnet, and routes to it.", engines::interfaces),
    check(
        "engine.namespaces",
        "Pinned network namespaces of another engine's pods keep their addresses and interfaces.",
        engines::namespaces,
    ),
    check(
        "engine.rules",
        "Rules of another engine's port mappings take precedence over those of Pinion's pods.",
        engines::rules,
    ),
    check(
        "security.apparmor",
        "If AppArmor is enabled and the profile cannot be loaded, containers with RuntimeDefault are refused.",
        security::apparmor,
    ),
    check(
        "security.selinux",
        "In enforcing mode, files that containers use need the types of container-selinux.",
        security::selinux,
    ),
    check("security.capabilities", "Root without these capabilities cannot create containers.", security::capabilities),
    check(
        "storage.file-system",
        "Layers and writable layers need a local file system that can carry an overlay.",
        storage::file_system,
    ),
    check("storage.space", "The kubelet evicts pods below 10 % and removes images above 85 % use.", storage::space),
    check(
        "storage.inodes",
        "Images of many small files exhaust inodes before space; the kubelet evicts pods below 5 %.",
        storage::inodes,
    ),
    check(
        "storage.permissions",
        "The root user of a pod with a user namespace must be able to traverse every parent of the data directory.",
        storage::permissions,
    ),
    check("storage.state", "State that is discarded at boot belongs on a tmpfs.", storage::state),
    check("limits.open-files", "The daemon keeps several descriptors for each container.", limits::open_files),
    check("clock.synchronized", "Certificates, tokens and leases of the node depend on the time.", clock::synchronized),
    check(
        "boot.kernel",
        "After an update of the kernel, modules of the running one may be gone until the next boot.",
        kernel::boot,
    ),
];

/// Runs all checks.
#[must_use]
pub fn examine(node: &Node) -> Report {
    let findings = CHECKS.iter().flat_map(|check| {
        (check.run)(node).into_iter().map(|verdict| Finding {
            id: check.id,
            severity: verdict.severity,
            message: verdict.message,
            reason: check.reason,
            fix: verdict.fix,
        })
    });
    Report::new(findings.collect())
}

#[cfg(test)]
mod tests;
