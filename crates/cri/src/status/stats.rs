use std::{
    collections::{HashMap, HashSet},
    path::Path,
    sync::{Mutex, PoisonError},
};

use cri_proto::v1;
use pod::{ContainerConfig, ContainerStats, Usage};

use super::{container, time};

/// Shortest time between two samples of which a rate is made, nanoseconds: below, the kernel's clock ticks show.
const RATE_WINDOW: u64 = 100_000_000;

/// CPU rates from successive samples of the callers' own reads: nothing is read in the background.
#[derive(Default)]
pub(crate) struct Rates(Mutex<HashMap<String, Sample>>);

#[derive(Clone, Copy)]
struct Sample {
    at: u64,
    used: u64,
    rate: Option<u64>,
}

impl Rates {
    /// Nanoseconds of CPU per second since an earlier read of this container; `None` at the first.
    pub(crate) fn next(&self, id: &str, at: u64, used: u64) -> Option<u64> {
        let mut samples = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(last) = samples.get_mut(id) else {
            samples.insert(id.to_owned(), Sample { at, used, rate: None });
            return None;
        };
        let passed = at.saturating_sub(last.at);
        if passed < RATE_WINDOW {
            return last.rate;
        }
        // Products of two 64-bit counters need more than 64 bits.
        let rate = u128::from(used.saturating_sub(last.used)) * 1_000_000_000 / u128::from(passed);
        *last = Sample { at, used, rate: u64::try_from(rate).ok() };
        last.rate
    }

    /// Forgets all but these containers.
    pub(crate) fn keep(&self, living: &HashSet<&str>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|id, _| living.contains(id.as_str()));
    }
}

/// One container's `ContainerStats`.
pub(crate) fn stats(
    stats: &ContainerStats,
    config: &ContainerConfig,
    rates: &Rates,
    root: &Path,
) -> v1::ContainerStats {
    let at = time(stats.at);
    let group = &stats.cgroup;
    let available = group.memory_limit.map(|limit| limit.saturating_sub(group.memory_working_set));
    v1::ContainerStats {
        attributes: Some(v1::ContainerAttributes {
            id: stats.id.clone(),
            metadata: Some(container::metadata(config)),
            labels: config.labels.clone().into_iter().collect(),
            annotations: config.annotations.clone().into_iter().collect(),
        }),
        cpu: Some(v1::CpuUsage {
            timestamp: at,
            usage_core_nano_seconds: value(group.cpu_usage_ns),
            usage_nano_cores: rates.next(&stats.id, stats.at, group.cpu_usage_ns).and_then(value),
            psi: None,
        }),
        memory: Some(v1::MemoryUsage {
            timestamp: at,
            working_set_bytes: value(group.memory_working_set),
            available_bytes: available.and_then(value),
            usage_bytes: value(group.memory_usage),
            rss_bytes: value(group.memory_rss),
            page_faults: value(group.page_faults),
            major_page_faults: value(group.major_page_faults),
            psi: None,
        }),
        writable_layer: Some(filesystem(at, root, stats.writable_layer)),
        swap: group.swap_usage.map(|used| v1::SwapUsage {
            timestamp: at,
            swap_available_bytes: group.swap_limit.map(|limit| limit.saturating_sub(used)).and_then(value),
            swap_usage_bytes: value(used),
        }),
        io: None,
    }
}

/// What lies under one folder.
pub(crate) fn filesystem(at: i64, root: &Path, usage: Usage) -> v1::FilesystemUsage {
    v1::FilesystemUsage {
        timestamp: at,
        fs_id: Some(v1::FilesystemIdentifier { mountpoint: root.display().to_string() }),
        used_bytes: value(usage.bytes),
        inodes_used: value(usage.inodes),
    }
}

fn value(value: u64) -> Option<v1::UInt64Value> {
    Some(v1::UInt64Value { value })
}
