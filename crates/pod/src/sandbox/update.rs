//! `UpdatePodSandboxResources`: changes the limits of a pod as a whole.
//!
//! For a pod below a caller's cgroup the caller (kubelet) sets the limits of that cgroup itself before it sends the
//! request. For a pod with a cgroup of its own they are set here. Either way they are stored and reported.

use std::sync::Arc;

use cgroup::{Group, GroupPath, Limits};

use super::{Sandbox, SandboxPhase};
use crate::{
    Engine, Error,
    engine::{Inner, blocking, detached},
    error::failed,
};

impl Engine {
    /// Changes the limits and the overhead of a pod; absent arguments leave them as they are.
    ///
    /// # Errors
    /// `NotFound`, `InvalidArgument`; `FailedPrecondition` if the pod is stopped. Nothing is changed then.
    pub async fn update_sandbox(
        &self,
        id: &str,
        overhead: Option<oci::Resources>,
        resources: Option<oci::Resources>,
    ) -> Result<(), Error> {
        let sandbox = self.0.sandbox(id)?;
        let engine = Arc::clone(&self.0);
        detached(async move {
            let operation = format!("update pod {}", sandbox.id());
            update(&engine, &sandbox, overhead, resources).await.map_err(|e| e.during(operation))
        })
        .await
    }
}

async fn update(
    engine: &Arc<Inner>,
    sandbox: &Arc<Sandbox>,
    overhead: Option<oci::Resources>,
    resources: Option<oci::Resources>,
) -> Result<(), Error> {
    // Keeps the pod from being stopped or removed in the meantime.
    let _gate = sandbox.gate.read().await;
    let record = sandbox.record();
    if record.phase != SandboxPhase::Ready {
        return Err(Error::state(format!("the pod is not ready: {}", record.stage)));
    }
    let config = sandbox.config();
    let resources = resources.or_else(|| record.resources.clone()).or_else(|| config.resources.clone());
    let overhead = overhead.or_else(|| record.overhead.clone()).or_else(|| config.overhead.clone());
    let limits = limits(resources.as_ref(), overhead.as_ref())?;
    if let (None, Some(limits)) = (&config.cgroup_parent, limits) {
        let (task_engine, path) = (Arc::clone(engine), engine.cgroup_of(sandbox));
        blocking(move || {
            let path = GroupPath::parse(&path).map_err(failed("read the path of its cgroup"))?;
            match Group::open(&task_engine.trees, &path) {
                Ok(group) => group.update(&limits).map_err(failed("change the limits of its cgroup")),
                // The cgroup does not exist because the pod has no container yet.
                Err(_) => {
                    Group::create(&task_engine.trees, &path, &limits).map(drop).map_err(failed("create its cgroup"))
                }
            }
        })
        .await?;
    }
    sandbox.update(&engine.records, |record| (record.resources, record.overhead) = (resources, overhead))
}

/// Returns the limits of the whole pod, containers and overhead; `None` if nothing is limited.
pub(crate) fn limits(
    resources: Option<&oci::Resources>,
    overhead: Option<&oci::Resources>,
) -> Result<Option<Limits>, Error> {
    let Some(resources) = resources else { return Ok(None) };
    let whole = with_overhead(resources, overhead);
    Limits::from_spec(&whole).map(Some).map_err(|e| Error::invalid(format!("limits of the pod: {e}")))
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
