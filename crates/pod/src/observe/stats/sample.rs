use std::{borrow::Cow, sync::Arc};

use cgroup::Stats;
use image::Usage;
use network::Counters;

use crate::{ContainerStatus, ExpensiveStats, SandboxStatus};

/// Resource usage of a running container.
#[derive(Clone, Debug)]
pub struct ContainerStats {
    /// Status of the container at the time of the measurement.
    pub container: ContainerStatus,
    /// When it was measured, in nanoseconds since the epoch.
    pub at: u64,
    /// CPU, memory, tasks, I/O, pressure.
    pub cgroup: Stats,
    /// Recent CPU usage in nanoseconds per second; `None` at the first measurement without elapsed time.
    pub cpu_rate: Option<u64>,
    /// Usage of its writable layer.
    pub writable_layer: Usage,
    /// Statistics that are read less often.
    pub expensive: Arc<ExpensiveStats>,
}

/// Resource usage of a pod, apart from that of its containers.
#[derive(Clone, Debug)]
pub struct SandboxSample {
    /// Status of the pod at the time of the measurement.
    pub sandbox: SandboxStatus,
    /// When it was measured, in nanoseconds since the epoch.
    pub at: u64,
    /// Usage of the parent cgroup of its containers; `None` if there is none, or other pods share it.
    pub cgroup: Option<Stats>,
    /// As [`ContainerStats::cpu_rate`].
    pub cpu_rate: Option<u64>,
    /// Counters of its interfaces, the primary one first; empty on the node's network.
    pub network: Vec<Counters>,
}

/// Resource usage of a pod and its running containers.
#[derive(Clone, Debug)]
pub struct SandboxStats {
    /// Usage of the pod itself.
    pub sample: Arc<SandboxSample>,
    /// Usage of its running containers.
    pub containers: Vec<Arc<ContainerStats>>,
}

impl SandboxStats {
    /// Returns the usage of the whole pod: that of its cgroup, else the sum of its containers (without pressure, which
    /// cannot be added up).
    pub fn cgroup(&self) -> Cow<'_, Stats> {
        match &self.sample.cgroup {
            Some(stats) => Cow::Borrowed(stats),
            None => Cow::Owned(sum(self.containers.iter().map(|container| &container.cgroup))),
        }
    }

    /// Returns the recent CPU usage of the whole pod, in nanoseconds per second.
    pub fn cpu_rate(&self) -> Option<u64> {
        match self.sample.cgroup {
            Some(_) => self.sample.cpu_rate,
            None => {
                self.containers.iter().try_fold(0_u64, |sum, container| Some(sum.saturating_add(container.cpu_rate?)))
            }
        }
    }

    /// Returns the number of processes of all containers.
    pub fn processes(&self) -> u64 {
        self.containers.iter().fold(0, |sum, container| sum.saturating_add(container.expensive.processes))
    }
}

fn sum<'a>(all: impl Iterator<Item = &'a Stats>) -> Stats {
    // Guests of virtual machines may report anything.
    let add = |total: &mut u64, value: u64| *total = total.saturating_add(value);
    let mut total = Stats::default();
    for stats in all {
        add(&mut total.cpu_usage_ns, stats.cpu_usage_ns);
        add(&mut total.cpu_user_ns, stats.cpu_user_ns);
        add(&mut total.cpu_system_ns, stats.cpu_system_ns);
        add(&mut total.memory_usage, stats.memory_usage);
        add(&mut total.memory_working_set, stats.memory_working_set);
        add(&mut total.memory_rss, stats.memory_rss);
        add(&mut total.page_faults, stats.page_faults);
        add(&mut total.major_page_faults, stats.major_page_faults);
        total.swap_usage = match (total.swap_usage, stats.swap_usage) {
            (Some(a), Some(b)) => Some(a.saturating_add(b)),
            (a, b) => a.or(b),
        };
        add(&mut total.pids, stats.pids);
        add(&mut total.io_read_bytes, stats.io_read_bytes);
        add(&mut total.io_write_bytes, stats.io_write_bytes);
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_without_a_cgroup_has_the_sum_of_its_containers() {
        let stats = |memory_usage, swap_usage| Stats { memory_usage, swap_usage, ..Stats::default() };
        let total = sum([stats(5, None), stats(7, Some(3))].iter());
        assert_eq!((total.memory_usage, total.swap_usage), (12, Some(3)));
        assert_eq!(sum([stats(1, Some(2)), stats(1, Some(3))].iter()).swap_usage, Some(5));
        assert_eq!(sum([stats(1, None)].iter()).swap_usage, None);
    }
}
