//! Limits of a pod's cgroup.

use cgroup::Limits;

use crate::Error;

/// Returns the limits of the whole pod, containers and overhead, parsed and as resources; `None` if nothing is limited.
pub(crate) fn pod_limits(
    resources: Option<&oci::Resources>,
    overhead: Option<&oci::Resources>,
) -> Result<Option<(Limits, oci::Resources)>, Error> {
    let Some(resources) = resources else { return Ok(None) };
    let whole = with_overhead(resources, overhead);
    let limits = Limits::from_spec(&whole).map_err(|e| Error::invalid(format!("limits of the pod: {e}")))?;
    Ok(Some((limits, whole)))
}

/// Adds the overhead to the limits that are set; it does not set any.
fn with_overhead(resources: &oci::Resources, overhead: Option<&oci::Resources>) -> oci::Resources {
    let mut whole = resources.clone();
    let sum = |value: Option<i64>, more: Option<i64>| match (value, more) {
        (Some(value @ 1..), Some(more @ 1..)) => Some(value.saturating_add(more)),
        (value, _) => value,
    };
    if let (Some(memory), Some(more)) = (&mut whole.memory, overhead.and_then(|o| o.memory.as_ref())) {
        memory.limit = sum(memory.limit, more.limit);
        // The swap limit includes memory, so it grows with the memory limit.
        memory.swap = sum(memory.swap, more.swap.or(more.limit));
    }
    if let (Some(cpu), Some(more)) = (&mut whole.cpu, overhead.and_then(|o| o.cpu.as_ref())) {
        let shares = |value: u64| value.saturating_add(more.shares.unwrap_or(0)).min(SHARES_MAX);
        cpu.shares = cpu.shares.map(shares);
        if cpu.period == more.period {
            cpu.quota = sum(cpu.quota, more.quota);
        }
    }
    whole
}

/// Maximum of cpu.shares in the kernel.
const SHARES_MAX: u64 = 262_144;

#[cfg(test)]
mod tests {
    use oci::{Cpu, Memory, Resources};

    use super::with_overhead;

    #[test]
    fn overhead_is_added_to_limits_that_are_set() {
        let resources = |limit, quota| Resources {
            memory: Some(Memory { limit, ..Memory::default() }),
            cpu: Some(Cpu { quota, period: Some(100_000), shares: Some(10), ..Cpu::default() }),
            ..Resources::default()
        };
        let whole = with_overhead(&resources(Some(100), Some(-1)), Some(&resources(Some(11), Some(7))));
        assert_eq!(whole.memory.and_then(|memory| memory.limit), Some(111));
        assert_eq!(whole.cpu.map(|cpu| (cpu.quota, cpu.shares)), Some((Some(-1), Some(20))));
        let unlimited = with_overhead(&resources(None, Some(5)), Some(&resources(Some(11), None)));
        assert_eq!(unlimited.memory.and_then(|memory| memory.limit), None);
        assert_eq!(unlimited.cpu.and_then(|cpu| cpu.quota), Some(5));
    }
}
