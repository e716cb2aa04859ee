//! A pod with all statistics, for tests.

use std::sync::Arc;

use cri_proto::v1;
use pod::{
    ContainerId, ContainerState, ContainerStats, ContainerStatus, Counters, DeviceIo, ExpensiveStats, HugePages,
    Pressure, SandboxId, SandboxSample, SandboxState, SandboxStats, SandboxStatus, Stalls, Stats, Usage, oci,
};

use crate::config;

pub(crate) const SECOND: u64 = 1_000_000_000;

/// Returns the id that repeats these two hex digits.
pub(crate) fn container_id(digits: &str) -> ContainerId {
    ContainerId::parse(&digits.repeat(32)).expect("a valid id")
}

/// Returns the id that repeats these two hex digits.
pub(crate) fn sandbox_id(digits: &str) -> SandboxId {
    SandboxId::parse(&digits.repeat(32)).expect("a valid id")
}

pub(crate) fn container(resources: oci::Resources) -> ContainerStatus {
    let message = v1::ContainerConfig {
        metadata: Some(v1::ContainerMetadata { name: "name".into(), attempt: 0 }),
        image: Some(v1::ImageSpec { image: "image".into(), ..Default::default() }),
        ..Default::default()
    };
    ContainerStatus {
        id: container_id("c1"),
        sandbox: sandbox_id("a1"),
        config: Arc::new(config::container(message).expect("a valid container")),
        image_id: "sha256:1".into(),
        state: ContainerState::Running,
        created_at: SECOND,
        started_at: 2 * SECOND,
        finished_at: 0,
        exit_code: None,
        reason: String::new(),
        message: String::new(),
        log_path: None,
        pid: Some(1),
        resources,
        oom_score_adj: 0,
        stop_signal: 15,
        user: oci::User::default(),
        stage: String::new(),
        creating: false,
    }
}

fn sandbox() -> SandboxStatus {
    let metadata =
        v1::PodSandboxMetadata { name: "pod".into(), uid: "uid".into(), namespace: "namespace".into(), attempt: 0 };
    let message = v1::PodSandboxConfig { metadata: Some(metadata), ..Default::default() };
    SandboxStatus {
        id: sandbox_id("a1"),
        config: Arc::new(config::sandbox(message, String::new()).expect("a valid pod")),
        state: SandboxState::Ready,
        created_at: SECOND,
        ips: Vec::new(),
        netns: None,
        stage: String::new(),
        creating: false,
    }
}

fn stats() -> Stats {
    let stalls = |total_ns| Stalls { total_ns, ..Stalls::default() };
    let pressure = Some(Pressure { some: stalls(7 * SECOND), full: stalls(3 * SECOND) });
    Stats {
        cpu_usage_ns: 12_900_000_000,
        cpu_periods: 9,
        memory_usage: 4096,
        pids: 3,
        io_devices: vec![DeviceIo { major: 254, minor: 77, read_bytes: 5, write_bytes: 6, reads: 1, writes: 2 }],
        cpu_pressure: pressure,
        memory_pressure: pressure,
        io_pressure: pressure,
        ..Stats::default()
    }
}

pub(crate) fn pod() -> SandboxStats {
    let resources = oci::Resources {
        cpu: Some(oci::Cpu { quota: Some(50_000), shares: Some(2), ..oci::Cpu::default() }),
        memory: Some(oci::Memory { limit: Some(80_000_000), swap: Some(-1), ..oci::Memory::default() }),
        ..oci::Resources::default()
    };
    let expensive = ExpensiveStats {
        processes: 2,
        open_files: Some(5),
        sockets: Some(2),
        open_files_limit: Some(1024),
        memory_max_usage: Some(8192),
        oom_kills: 1,
        huge_pages: vec![HugePages { size: "2MB".into(), usage: 2 << 20, max_usage: 4 << 20 }],
        ..ExpensiveStats::default()
    };
    let container = ContainerStats {
        container: container(resources),
        at: 1_700_000_000 * SECOND,
        cgroup: stats(),
        cpu_rate: Some(5),
        writable_layer: Usage { bytes: 777, inodes: 3 },
        expensive: Arc::new(expensive),
    };
    let network = vec![Counters { interface: "eth0".into(), rx_bytes: 10, tx_dropped: 2, ..Counters::default() }];
    let sample =
        SandboxSample { sandbox: sandbox(), at: 1_700_000_000 * SECOND, cgroup: None, cpu_rate: None, network };
    SandboxStats { sample: Arc::new(sample), containers: vec![Arc::new(container)] }
}
