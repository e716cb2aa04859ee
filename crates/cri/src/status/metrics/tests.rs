use std::collections::{HashMap, HashSet};

use cri_proto::{encoded::ListPodSandboxMetricsResponse, v1};

use super::{Filesystem, descriptors, of_sandbox};
use crate::status::samples::{SECOND, container_id, pod, sandbox_id};

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
    let written: HashSet<&str> = all.iter().map(|metric| metric.name.as_str()).collect();
    let unused: Vec<&String> = described.keys().filter(|name| !written.contains(name.as_str())).collect();
    assert!(unused.is_empty(), "descriptors without a metric: {unused:?}");
    let series: HashSet<_> = all.iter().map(|metric| (&metric.name, &metric.label_values)).collect();
    assert_eq!(series.len(), all.len(), "Prometheus refuses duplicate series");
}

fn is_counter(name: &str) -> bool {
    // cAdvisor gives this gauge the suffix of a counter.
    name != "container_fs_inodes_total" && name.ends_with("_total") || name == "container_memory_failcnt"
}

#[test]
fn values_are_those_of_the_sample() {
    let pod = metrics();
    let (pod_id, id) = (sandbox_id("a1"), container_id("c1"));
    assert_eq!(
        (pod.pod_sandbox_id.as_str(), pod.container_metrics[0].container_id.as_str()),
        (pod_id.as_str(), id.as_str())
    );
    let find = |name: &str, label: &str| {
        let all = pod.metrics.iter().chain(&pod.container_metrics[0].metrics);
        let mut matching =
            all.filter(|m| m.name == name && (label.is_empty() || m.label_values.iter().any(|v| v == label)));
        let metric = matching.next().unwrap_or_else(|| panic!("{name} {label}"));
        (metric.value.expect("a value").value, metric.label_values.clone())
    };
    let (seconds, labels) = find("container_cpu_usage_seconds_total", "total");
    assert_eq!(seconds, 12, "whole seconds: CRI has no fractions");
    assert_eq!(labels, ["name", id.as_str(), "image", "namespace", "pod", "total"]);
    let (bytes, labels) = find("container_network_receive_bytes_total", "eth0");
    assert_eq!(
        (bytes, labels),
        (10, ["POD", pod_id.as_str(), "", "namespace", "pod", "eth0"].map(str::to_owned).to_vec())
    );
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
