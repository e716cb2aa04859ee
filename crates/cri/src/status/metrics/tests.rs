use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use cri_proto::{encoded::ListPodSandboxMetricsResponse, v1};
use pod::{
    ContainerState, ContainerStats, ContainerStatus, Counters, DeviceIo, HugePages, Occasional, Pressure,
    SandboxSample, SandboxState, SandboxStats, SandboxStatus, Stalls, Stats, Usage, oci,
};

use super::{Filesystem, descriptors, of_sandbox};
use crate::config;

const SECOND: u64 = 1_000_000_000;

fn container(resources: oci::Resources) -> ContainerStatus {
    let message = v1::ContainerConfig {
        metadata: Some(v1::ContainerMetadata { name: "name".into(), attempt: 0 }),
        image: Some(v1::ImageSpec { image: "image".into(), ..Default::default() }),
        ..Default::default()
    };
    ContainerStatus {
        id: "c1".into(),
        sandbox: "p1".into(),
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
        making: false,
    }
}

fn sandbox() -> SandboxStatus {
    let metadata =
        v1::PodSandboxMetadata { name: "pod".into(), uid: "uid".into(), namespace: "namespace".into(), attempt: 0 };
    let message = v1::PodSandboxConfig { metadata: Some(metadata), ..Default::default() };
    SandboxStatus {
        id: "p1".into(),
        config: Arc::new(config::sandbox(message, String::new()).expect("a valid pod")),
        state: SandboxState::Ready,
        created_at: SECOND,
        ips: Vec::new(),
        netns: None,
        stage: String::new(),
        making: false,
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

fn pod() -> SandboxStats {
    let resources = oci::Resources {
        cpu: Some(oci::Cpu { quota: Some(50_000), shares: Some(2), ..oci::Cpu::default() }),
        memory: Some(oci::Memory { limit: Some(80_000_000), swap: Some(-1), ..oci::Memory::default() }),
        ..oci::Resources::default()
    };
    let occasional = Occasional {
        processes: 2,
        open_files: Some(5),
        open_files_limit: Some(1024),
        memory_max_usage: Some(8192),
        oom_kills: 1,
        huge_pages: vec![HugePages { size: "2MB".into(), usage: 2 << 20, max_usage: 4 << 20 }],
        ..Occasional::default()
    };
    let container = ContainerStats {
        container: container(resources),
        at: 1_700_000_000 * SECOND,
        cgroup: stats(),
        cpu_rate: Some(5),
        writable_layer: Usage { bytes: 777, inodes: 3 },
        occasional: Arc::new(occasional),
    };
    let network = vec![Counters { interface: "eth0".into(), rx_bytes: 10, tx_dropped: 2, ..Counters::default() }];
    let sample =
        SandboxSample { sandbox: sandbox(), at: 1_700_000_000 * SECOND, cgroup: None, cpu_rate: None, network };
    SandboxStats { sample: Arc::new(sample), containers: vec![Arc::new(container)] }
}

fn metrics() -> v1::PodSandboxMetrics {
    let filesystem = Filesystem { device: "/dev/x".into(), size: 100, inodes: 9, inodes_free: 4 };
    let row = of_sandbox(&pod(), &filesystem);
    let mut list = ListPodSandboxMetricsResponse::from(vec![row]).decode_rows().expect("a list of metrics");
    list.pod_metrics.remove(0)
}

#[test]
fn descriptors_and_metrics_agree() {
    let described: HashMap<String, Vec<String>> =
        descriptors().into_iter().map(|descriptor| (descriptor.name, descriptor.label_keys)).collect();
    assert_eq!(described.len(), descriptors().len(), "names are unique");
    let pod = metrics();
    let all: Vec<&v1::Metric> =
        pod.metrics.iter().chain(pod.container_metrics.iter().flat_map(|container| &container.metrics)).collect();
    for metric in &all {
        let keys = described.get(&metric.name).unwrap_or_else(|| panic!("{} is not described", metric.name));
        assert_eq!(metric.label_values.len(), keys.len(), "{}", metric.name);
        assert!(metric.value.is_some() && metric.timestamp == 1_700_000_000 * SECOND as i64, "{}", metric.name);
        assert_eq!(metric.metric_type() == v1::MetricType::Counter, is_counter(&metric.name), "{}", metric.name);
    }
    let told: HashSet<&str> = all.iter().map(|metric| metric.name.as_str()).collect();
    let untold: Vec<&String> = described.keys().filter(|name| !told.contains(name.as_str())).collect();
    assert!(untold.is_empty(), "described and never told: {untold:?}");
    let series: HashSet<_> = all.iter().map(|metric| (&metric.name, &metric.label_values)).collect();
    assert_eq!(series.len(), all.len(), "Prometheus refuses a series that is told twice");
}

fn is_counter(name: &str) -> bool {
    // cAdvisor calls the number of inodes so.
    name != "container_fs_inodes_total" && name.ends_with("_total") || name == "container_memory_failcnt"
}

#[test]
fn values_are_those_of_the_sample() {
    let pod = metrics();
    assert_eq!((pod.pod_sandbox_id.as_str(), pod.container_metrics[0].container_id.as_str()), ("p1", "c1"));
    let find = |name: &str, label: &str| {
        let all = pod.metrics.iter().chain(&pod.container_metrics[0].metrics);
        let mut found =
            all.filter(|m| m.name == name && (label.is_empty() || m.label_values.iter().any(|v| v == label)));
        let metric = found.next().unwrap_or_else(|| panic!("{name} {label}"));
        (metric.value.expect("a value").value, metric.label_values.clone())
    };
    let (seconds, labels) = find("container_cpu_usage_seconds_total", "total");
    assert_eq!(seconds, 12, "whole seconds: CRI has no fractions");
    assert_eq!(labels, ["name", "c1", "image", "namespace", "pod", "total"]);
    let (bytes, labels) = find("container_network_receive_bytes_total", "eth0");
    assert_eq!((bytes, labels), (10, ["POD", "p1", "", "namespace", "pod", "eth0"].map(str::to_owned).to_vec()));
    assert_eq!(find("container_network_transmit_packets_dropped_total", "eth0").0, 2);
    assert_eq!(find("container_pressure_cpu_waiting_seconds_total", "").0, 7);
    assert_eq!(find("container_pressure_io_stalled_seconds_total", "").0, 3);
    assert_eq!(find("container_spec_memory_limit_bytes", "").0, 80_000_000);
    assert_eq!(find("container_spec_memory_swap_limit_bytes", "").0, 0, "no limit");
    assert_eq!(find("container_spec_cpu_quota", "").0, 50_000);
    assert_eq!(find("container_fs_usage_bytes", "/dev/x").0, 777);
    assert_eq!(find("container_blkio_device_usage_total", "Write").0, 6);
    assert_eq!(find("container_last_seen", "").0, 1_700_000_000);
    assert_eq!(find("container_ulimits_soft", "max_open_files").0, 1024);
}
