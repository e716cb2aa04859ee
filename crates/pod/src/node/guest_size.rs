//! How large the virtual machine of a pod is.
//!
//! It boots with `memory` and `cpus` of its handler, its base, which is for the kernel, the agent and containers without a
//! limit. What the limits of the pod allow is added to that, as Kata Containers sizes a sandbox:
//!
//! ```text
//! memory = base + limits of the containers that have not exited, or of the pod    in blocks, at most memory_max
//! cpus   = base + quotas of these containers, or of the pod, rounded up           at most cpus_max
//! ```
//! The limit of the pod replaces the sum for its containers: it is larger if it is for containers without a limit, too, and
//! smaller if these share it. One below the limit of a single container is out of date and is not considered: before
//! `UpdatePodSandboxResources`, the kubelet resized containers without informing the runtime about the pod.

use crate::{Error, ErrorKind};

/// What memory is added in multiples of, in bytes: the size of what Linux adds and removes on x86-64 in guests with less than
/// 64 GiB at boot.
pub(crate) const BLOCK: u64 = 128 << 20;
/// Thousandths of a processor.
const MILLIS: u64 = 1000;
/// Period of a quota without one, in microseconds: the default of the kernel.
const PERIOD: u64 = 100_000;

/// What the limits of a pod allow in addition to the base of its virtual machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Demand {
    /// Memory in bytes.
    pub(crate) memory: u64,
    /// Thousandths of a processor.
    pub(crate) cpu_millis: u64,
}

impl Demand {
    /// Returns the demand of a pod with these limits, and of its containers.
    pub(crate) fn new(pod: Option<&oci::Resources>, containers: &[oci::Resources]) -> Self {
        Self { memory: combined(pod, containers, memory_limit), cpu_millis: combined(pod, containers, cpu_limit) }
    }
}

fn combined(
    pod: Option<&oci::Resources>,
    containers: &[oci::Resources],
    limit: fn(&oci::Resources) -> Option<u64>,
) -> u64 {
    let of_containers = || containers.iter().filter_map(limit);
    let largest = of_containers().max().unwrap_or(0);
    match pod.and_then(limit).filter(|limit| *limit >= largest) {
        Some(limit) => limit,
        None => of_containers().fold(0, u64::saturating_add),
    }
}

fn memory_limit(resources: &oci::Resources) -> Option<u64> {
    let limit = resources.memory.as_ref()?.limit.filter(|limit| *limit > 0)?;
    Some(limit.unsigned_abs())
}

/// Returns a quota in thousandths of a processor, rounded up; without one, the number of processors that are set, as the kubelet's
/// static CPU manager does.
fn cpu_limit(resources: &oci::Resources) -> Option<u64> {
    let cpu = resources.cpu.as_ref()?;
    let Some(quota) = cpu.quota.filter(|quota| *quota > 0).map(i64::unsigned_abs) else {
        let cpus = cpu.cpus.as_deref().filter(|cpus| !cpus.is_empty())?;
        return Some(u64::from(count_cpus(cpus)) * MILLIS);
    };
    let period = cpu.period.filter(|period| *period > 0).unwrap_or(PERIOD);
    Some(quota.saturating_mul(MILLIS).div_ceil(period))
}

/// Counts the processors of a list such as `0-3,8`.
pub(super) fn count_cpus(list: &str) -> u32 {
    let count = |range: &str| -> Option<u32> {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        last.parse::<u32>().ok()?.checked_sub(first.parse().ok()?)?.checked_add(1)
    };
    list.trim().split(',').filter_map(count).fold(0, u32::saturating_add).max(1)
}

/// What a virtual machine boots with, and what it can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// Memory to boot with, in bytes.
    pub(crate) memory: u64,
    /// Memory that can be added, in bytes, a multiple of [`BLOCK`].
    pub(crate) pluggable: u64,
    /// Processors to boot with.
    pub(crate) cpus: u32,
    /// Most processors.
    pub(crate) cpus_max: u32,
}

/// What a virtual machine is to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// Memory in addition to that of the boot, in bytes.
    pub(crate) added_memory: u64,
    /// Processors.
    pub(crate) cpus: u32,
}

impl Bounds {
    /// Returns the size for a demand. Quotas that leave no processor for the base share those that there can be.
    ///
    /// # Errors
    /// `ResourceExhausted` if memory or processors are not enough.
    pub(crate) fn target(&self, demand: Demand) -> Result<Target, Error> {
        let exhausted = |message: String| Err(Error::new(ErrorKind::ResourceExhausted, message));
        let Demand { memory, cpu_millis } = demand;
        let added_memory = memory.checked_next_multiple_of(BLOCK).filter(|memory| *memory <= self.pluggable);
        let Some(added_memory) = added_memory else {
            let Self { memory: base, pluggable, .. } = self;
            return exhausted(format!(
                "the limits of the pod allow {memory} bytes of memory, and its virtual machine can have {pluggable} in \
                 addition to its own {base}; lower the limits, or set memory_max of the runtime handler"
            ));
        };
        let quota = u32::try_from(cpu_millis.div_ceil(MILLIS)).unwrap_or(u32::MAX);
        let max = self.cpus_max;
        if quota > max {
            return exhausted(format!(
                "the limits of the pod allow {quota} processors, and its virtual machine can have {max}; lower the limits, \
                 or set cpus_max of the runtime handler"
            ));
        }
        Ok(Target { added_memory, cpus: self.cpus.saturating_add(quota).min(max) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const BOUNDS: Bounds = Bounds { memory: 256 * MIB, pluggable: 1024 * MIB, cpus: 1, cpus_max: 4 };

    /// Returns limits: mebibytes, and quota and period in microseconds.
    fn limits(memory: i64, quota: i64, period: Option<u64>) -> oci::Resources {
        let limit = if memory > 0 { memory << 20 } else { memory };
        oci::Resources {
            memory: Some(oci::Memory { limit: Some(limit), ..oci::Memory::default() }),
            cpu: Some(oci::Cpu { quota: Some(quota), period, ..oci::Cpu::default() }),
            ..oci::Resources::default()
        }
    }

    fn target(pod: Option<oci::Resources>, containers: &[oci::Resources]) -> (u64, u32) {
        let target = BOUNDS.target(Demand::new(pod.as_ref(), containers)).expect("it fits");
        (target.added_memory / MIB, target.cpus)
    }

    #[test]
    fn limits_of_containers_are_added_up_and_rounded_up_once() {
        assert_eq!(target(None, &[]), (0, 1));
        assert_eq!(target(None, &[oci::Resources::default(), limits(-1, -1, None), limits(0, 0, Some(0))]), (0, 1));
        let half = limits(100, 50_000, Some(100_000));
        assert_eq!(target(None, std::slice::from_ref(&half)), (128, 2));
        assert_eq!(target(None, &[half.clone(), half.clone()]), (256, 2), "two halves are one processor");
        assert_eq!(target(None, &[half.clone(), half, limits(1, 1, Some(10_000))]), (256, 3));
        assert_eq!(target(None, &[limits(0, 150_000, None)]), (0, 3), "the default of the period is 100 ms");
    }

    #[test]
    fn the_limits_of_the_pod_replace_the_sum() {
        let containers = [limits(300, 100_000, None), limits(200, 100_000, None)];
        assert_eq!(target(Some(limits(384, 100_000, None)), &containers), (384, 2), "the containers share it");
        assert_eq!(target(Some(limits(1024, 300_000, None)), &containers), (1024, 4), "others use the rest");
        assert_eq!(target(Some(limits(256, 50_000, None)), &containers), (512, 3), "it is out of date");
        assert_eq!(target(Some(limits(-1, -1, None)), &containers), (512, 3), "the pod has no limit");
        assert_eq!(target(Some(limits(0, 0, None)), &containers), (512, 3));
        assert_eq!(target(Some(limits(256, 200_000, None)), &[]), (256, 3), "before the first container");
    }

    #[test]
    fn the_bounds_are_kept() {
        assert_eq!(target(None, &[limits(1024, 400_000, None)]), (1024, 4), "quotas may use what the base uses");
        for (refused, field) in [
            (limits(1025, 0, None), "memory_max"),
            (limits(1 << 40, 0, None), "memory_max"),
            (limits(0, 400_001, None), "cpus_max"),
            (limits(0, i64::MAX, Some(1)), "cpus_max"),
        ] {
            let demand = Demand::new(None, &[refused.clone(), limits(1, 0, None)]);
            let error = BOUNDS.target(demand).expect_err("too much");
            assert!(error.kind == ErrorKind::ResourceExhausted && error.message.contains(field), "{error}");
            BOUNDS.target(Demand::new(Some(&refused), &[])).expect_err("too much for a pod");
        }
        let unbounded = limits(i64::MAX >> 20, 0, None);
        let containers = [unbounded.clone(), unbounded.clone(), unbounded];
        BOUNDS.target(Demand::new(None, &containers)).expect_err("sums do not overflow");
    }

    #[test]
    fn processors_are_counted() {
        for (list, count) in
            [("0\n", 1), ("0-3\n", 4), ("0-3,8,10-11\n", 7), ("", 1), ("3-1,x", 1), ("0-4294967295", 1)]
        {
            assert_eq!(count_cpus(list), count, "{list:?}");
        }
    }

    #[test]
    fn processors_that_are_set_count_without_a_quota() {
        let resources = |quota: i64, cpus: &str| oci::Resources {
            cpu: Some(oci::Cpu { quota: Some(quota), cpus: Some(cpus.to_owned()), ..oci::Cpu::default() }),
            ..oci::Resources::default()
        };
        assert_eq!(cpu_limit(&resources(-1, "0-3,8")), Some(5000));
        assert_eq!(cpu_limit(&resources(150_000, "0-3")), Some(1500));
        assert_eq!(cpu_limit(&resources(-1, "")), None);
    }
}
