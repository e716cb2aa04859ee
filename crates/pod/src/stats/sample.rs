use std::{borrow::Cow, sync::Arc};

use cgroup::Stats;
use image::Usage;
use network::Counters;

use super::Occasional;
use crate::{ContainerStatus, SandboxStatus};

/// What a running container used so far, and uses.
#[derive(Clone, Debug)]
pub struct ContainerStats {
    /// The container as it was then.
    pub container: ContainerStatus,
    /// When it was measured, nanoseconds since the epoch.
    pub at: u64,
    /// CPU, memory, tasks, I/O, pressure.
    pub cgroup: Stats,
    /// Nanoseconds of CPU per second of late; `None` at the first look.
    pub cpu_rate: Option<u64>,
    /// Its writable layer.
    pub writable_layer: Usage,
    /// What is looked at now and then.
    pub occasional: Arc<Occasional>,
}

/// What a pod used so far, and uses, apart from its containers.
#[derive(Clone, Debug)]
pub struct SandboxSample {
    /// The pod as it was then.
    pub sandbox: SandboxStatus,
    /// When it was measured, nanoseconds since the epoch.
    pub at: u64,
    /// Of the cgroup above its containers; `None` where it has none, or not for itself.
    pub cgroup: Option<Stats>,
    /// As [`ContainerStats::cpu_rate`].
    pub cpu_rate: Option<u64>,
    /// Its interfaces, the primary one first; none of a pod on the node's network.
    pub network: Vec<Counters>,
}

/// A pod with its running containers.
#[derive(Clone, Debug)]
pub struct SandboxStats {
    /// The pod itself.
    pub sample: Arc<SandboxSample>,
    /// Its running containers.
    pub containers: Vec<Arc<ContainerStats>>,
}

impl SandboxStats {
    /// What the whole pod uses: its cgroup's figures, else its containers' added up (then without pressure, which does
    /// not add up).
    pub fn cgroup(&self) -> Cow<'_, Stats> {
        match &self.sample.cgroup {
            Some(stats) => Cow::Borrowed(stats),
            None => Cow::Owned(sum(self.containers.iter().map(|container| &container.cgroup))),
        }
    }

    /// Nanoseconds of CPU per second of late.
    pub fn cpu_rate(&self) -> Option<u64> {
        match self.sample.cgroup {
            Some(_) => self.sample.cpu_rate,
            None => self.containers.iter().map(|container| container.cpu_rate).sum(),
        }
    }

    /// Processes of all containers.
    pub fn processes(&self) -> u64 {
        self.containers.iter().map(|container| container.occasional.processes).sum()
    }
}

fn sum<'a>(all: impl Iterator<Item = &'a Stats>) -> Stats {
    let mut total = Stats::default();
    for stats in all {
        total.cpu_usage_ns += stats.cpu_usage_ns;
        total.cpu_user_ns += stats.cpu_user_ns;
        total.cpu_system_ns += stats.cpu_system_ns;
        total.memory_usage += stats.memory_usage;
        total.memory_working_set += stats.memory_working_set;
        total.memory_rss += stats.memory_rss;
        total.page_faults += stats.page_faults;
        total.major_page_faults += stats.major_page_faults;
        total.swap_usage = match (total.swap_usage, stats.swap_usage) {
            (Some(a), Some(b)) => Some(a + b),
            (a, b) => a.or(b),
        };
        total.pids += stats.pids;
        total.io_read_bytes += stats.io_read_bytes;
        total.io_write_bytes += stats.io_write_bytes;
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_without_a_group_is_its_containers() {
        let stats = |memory_usage, swap_usage| Stats { memory_usage, swap_usage, ..Stats::default() };
        let total = sum([stats(5, None), stats(7, Some(3))].iter());
        assert_eq!((total.memory_usage, total.swap_usage), (12, Some(3)));
        assert_eq!(sum([stats(1, Some(2)), stats(1, Some(3))].iter()).swap_usage, Some(5));
        assert_eq!(sum([stats(1, None)].iter()).swap_usage, None);
    }
}
