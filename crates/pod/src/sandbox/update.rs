//! `UpdatePodSandboxResources`: the limits of a pod as a whole.
//!
//! A pod below a caller's cgroup has them from the caller, who changes that group itself before it tells of it
//! (kubelet); one with a cgroup of its own has them from here. Either way they are remembered and told.

use std::sync::Arc;

use cgroup::{Group, GroupPath, Limits};

use super::{Sandbox, SandboxPhase};
use crate::{
    Engine, Error,
    engine::{Inner, blocking, detached},
    error::failed,
};

impl Engine {
    /// Changes the limits of a pod and what it costs itself; what is absent stays as it is.
    ///
    /// # Errors
    /// `NotFound`, `InvalidArgument`; `FailedPrecondition` when it is stopped. Nothing is changed then.
    pub async fn update_sandbox(
        &self,
        id: &str,
        overhead: Option<oci::Resources>,
        resources: Option<oci::Resources>,
    ) -> Result<(), Error> {
        let sandbox = self.0.sandbox(id)?;
        let engine = Arc::clone(&self.0);
        detached(async move {
            let told = format!("update pod {}", sandbox.id());
            update(&engine, &sandbox, overhead, resources).await.map_err(|e| e.during(told))
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
    // Not while it is stopped or removed.
    let _open = sandbox.gate.read().await;
    let record = sandbox.record();
    if record.phase != SandboxPhase::Ready {
        return Err(Error::state(format!("the pod is not ready: {}", record.stage)));
    }
    let config = sandbox.config();
    let resources = resources.or_else(|| record.resources.clone()).or_else(|| config.resources.clone());
    let overhead = overhead.or_else(|| record.overhead.clone()).or_else(|| config.overhead.clone());
    let limits = limits(resources.as_ref(), overhead.as_ref())?;
    if let (None, Some(limits)) = (&config.cgroup_parent, limits) {
        let (of, path) = (Arc::clone(engine), engine.cgroup_of(sandbox));
        blocking(move || {
            let path = GroupPath::parse(&path).map_err(failed("read the path of its cgroup"))?;
            match Group::open(&of.trees, &path) {
                Ok(group) => group.update(&limits).map_err(failed("change the limits of its cgroup")),
                // It has no container yet.
                Err(_) => Group::create(&of.trees, &path, &limits).map(drop).map_err(failed("make its cgroup")),
            }
        })
        .await?;
    }
    sandbox.update(&engine.records, |record| (record.resources, record.overhead) = (resources, overhead))
}

/// Of the whole pod: its containers' and its own; `None`: nothing is limited.
pub(crate) fn limits(
    resources: Option<&oci::Resources>,
    overhead: Option<&oci::Resources>,
) -> Result<Option<Limits>, Error> {
    let Some(resources) = resources else { return Ok(None) };
    let whole = with_overhead(resources, overhead);
    Limits::from_spec(&whole).map(Some).map_err(|e| Error::invalid(format!("limits of the pod: {e}")))
}

/// Overhead raises limits; it makes none.
fn with_overhead(resources: &oci::Resources, overhead: Option<&oci::Resources>) -> oci::Resources {
    let mut whole = resources.clone();
    let sum = |of: Option<i64>, more: Option<i64>| match (of, more) {
        (Some(of @ 1..), Some(more @ 1..)) => Some(of.saturating_add(more)),
        (of, _) => of,
    };
    if let (Some(memory), Some(more)) = (&mut whole.memory, overhead.and_then(|o| o.memory.as_ref())) {
        memory.limit = sum(memory.limit, more.limit);
        // Both together: it grows with the memory in it.
        memory.swap = sum(memory.swap, more.swap.or(more.limit));
    }
    if let (Some(cpu), Some(more)) = (&mut whole.cpu, overhead.and_then(|o| o.cpu.as_ref())) {
        let shares = |of: u64| of.saturating_add(more.shares.unwrap_or(0)).min(SHARES_MAX);
        cpu.shares = cpu.shares.map(shares);
        if cpu.period == more.period {
            cpu.quota = sum(cpu.quota, more.quota);
        }
    }
    whole
}

/// The kernel's own bound.
const SHARES_MAX: u64 = 262_144;

#[cfg(test)]
mod tests {
    use oci::{Cpu, Memory, Resources};

    use super::with_overhead;

    #[test]
    fn overhead_raises_what_is_limited() {
        let of = |limit, quota| Resources {
            memory: Some(Memory { limit, ..Memory::default() }),
            cpu: Some(Cpu { quota, period: Some(100_000), shares: Some(10), ..Cpu::default() }),
            ..Resources::default()
        };
        let whole = with_overhead(&of(Some(100), Some(-1)), Some(&of(Some(11), Some(7))));
        assert_eq!(whole.memory.and_then(|memory| memory.limit), Some(111));
        assert_eq!(whole.cpu.map(|cpu| (cpu.quota, cpu.shares)), Some((Some(-1), Some(20))));
        let unlimited = with_overhead(&of(None, Some(5)), Some(&of(Some(11), None)));
        assert_eq!(unlimited.memory.and_then(|memory| memory.limit), None);
        assert_eq!(unlimited.cpu.and_then(|cpu| cpu.quota), Some(5));
    }
}
