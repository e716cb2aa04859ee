//! Converts the resource usage of containers and pods.

use cri_proto::v1;
use pod::{ContainerStats, Counters, Pressure, SandboxStats, Stalls, Stats, Usage};

use super::{container, sandbox, time};

/// Converts to `ContainerStats`; `root` is the directory of the writable layers.
pub(crate) fn of_container(stats: &ContainerStats, root: &str) -> v1::ContainerStats {
    v1::ContainerStats { attributes: Some(attributes_of_container(stats)), ..usage_of_container(stats, root) }
}

/// Returns the identity of a container, which never changes.
pub(crate) fn attributes_of_container(stats: &ContainerStats) -> v1::ContainerAttributes {
    let config = &stats.container.config;
    v1::ContainerAttributes {
        id: stats.container.id.to_string(),
        metadata: Some(container::metadata(config)),
        labels: config.labels.clone().into_iter().collect(),
        annotations: config.annotations.clone().into_iter().collect(),
    }
}

/// Returns the resource usage of a container without its attributes.
pub(crate) fn usage_of_container(stats: &ContainerStats, root: &str) -> v1::ContainerStats {
    let at = time(stats.at);
    v1::ContainerStats {
        attributes: None,
        cpu: Some(cpu(at, &stats.cgroup, stats.cpu_rate)),
        memory: Some(memory(at, &stats.cgroup)),
        writable_layer: Some(filesystem(at, root, stats.writable_layer)),
        swap: swap(at, &stats.cgroup),
        io: Some(io(at, &stats.cgroup)),
    }
}

/// Converts to `PodSandboxStats`, including the pod's running containers.
pub(crate) fn of_sandbox(stats: &SandboxStats, root: &str) -> v1::PodSandboxStats {
    let mut linux = usage_of_sandbox(stats);
    linux.containers = stats.containers.iter().map(|container| of_container(container, root)).collect();
    v1::PodSandboxStats { attributes: Some(attributes_of_sandbox(stats)), linux: Some(linux), windows: None }
}

/// Returns the identity of a pod, which never changes.
pub(crate) fn attributes_of_sandbox(stats: &SandboxStats) -> v1::PodSandboxAttributes {
    let config = &stats.sample.sandbox.config;
    v1::PodSandboxAttributes {
        id: stats.sample.sandbox.id.to_string(),
        metadata: Some(sandbox::metadata(config)),
        labels: config.labels.clone().into_iter().collect(),
        annotations: config.annotations.clone().into_iter().collect(),
    }
}

/// Returns the resource usage of a pod without its containers.
pub(crate) fn usage_of_sandbox(stats: &SandboxStats) -> v1::LinuxPodSandboxStats {
    let (at, cgroup) = (time(stats.sample.at), stats.cgroup());
    v1::LinuxPodSandboxStats {
        cpu: Some(cpu(at, &cgroup, stats.cpu_rate())),
        memory: Some(memory(at, &cgroup)),
        network: network(at, &stats.sample.network),
        process: Some(v1::ProcessUsage { timestamp: at, process_count: value(stats.processes()) }),
        containers: Vec::new(),
        io: Some(io(at, &cgroup)),
    }
}

fn cpu(at: i64, stats: &Stats, rate: Option<u64>) -> v1::CpuUsage {
    v1::CpuUsage {
        timestamp: at,
        usage_core_nano_seconds: value(stats.cpu_usage_ns),
        usage_nano_cores: rate.and_then(value),
        psi: stats.cpu_pressure.as_ref().map(psi),
    }
}

fn memory(at: i64, stats: &Stats) -> v1::MemoryUsage {
    v1::MemoryUsage {
        timestamp: at,
        working_set_bytes: value(stats.memory_working_set),
        available_bytes: value(available(stats.memory_limit, stats.memory_working_set)),
        usage_bytes: value(stats.memory_usage),
        rss_bytes: value(stats.memory_rss),
        page_faults: value(stats.page_faults),
        major_page_faults: value(stats.major_page_faults),
        psi: stats.memory_pressure.as_ref().map(psi),
    }
}

/// Returns the difference between a limit and the usage; 0 without a limit, as containerd and CRI-O report it. Clients
/// treat an absent value as one that could not be measured.
fn available(limit: Option<u64>, used: u64) -> u64 {
    limit.map_or(0, |limit| limit.saturating_sub(used))
}

/// Returns the swap usage; `None` if the kernel does not account swap.
fn swap(at: i64, stats: &Stats) -> Option<v1::SwapUsage> {
    stats.swap_usage.map(|used| v1::SwapUsage {
        timestamp: at,
        swap_available_bytes: value(available(stats.swap_limit, used)),
        swap_usage_bytes: value(used),
    })
}

fn io(at: i64, stats: &Stats) -> v1::IoUsage {
    v1::IoUsage { timestamp: at, psi: stats.io_pressure.as_ref().map(psi) }
}

fn psi(pressure: &Pressure) -> v1::PsiStats {
    let data = |stalls: &Stalls| {
        Some(v1::PsiData { total: stalls.total_ns, avg10: stalls.avg10, avg60: stalls.avg60, avg300: stalls.avg300 })
    };
    v1::PsiStats { full: data(&pressure.full), some: data(&pressure.some) }
}

/// Returns the network usage; `None` for a pod in the node's network.
fn network(at: i64, interfaces: &[Counters]) -> Option<v1::NetworkUsage> {
    let usage = |counters: &Counters| v1::NetworkInterfaceUsage {
        name: counters.interface.clone(),
        rx_bytes: value(counters.rx_bytes),
        rx_errors: value(counters.rx_errors),
        tx_bytes: value(counters.tx_bytes),
        tx_errors: value(counters.tx_errors),
    };
    let (first, others) = interfaces.split_first()?;
    Some(v1::NetworkUsage {
        timestamp: at,
        default_interface: Some(usage(first)),
        interfaces: others.iter().map(usage).collect(),
    })
}

/// Returns the disk usage of a directory.
pub(crate) fn filesystem(at: i64, root: &str, usage: Usage) -> v1::FilesystemUsage {
    v1::FilesystemUsage {
        timestamp: at,
        fs_id: Some(v1::FilesystemIdentifier { mountpoint: root.to_owned() }),
        used_bytes: value(usage.bytes),
        inodes_used: value(usage.inodes),
    }
}

fn value(value: u64) -> Option<v1::UInt64Value> {
    Some(v1::UInt64Value { value })
}
