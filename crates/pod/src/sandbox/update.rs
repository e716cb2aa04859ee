//! `UpdatePodSandboxResources`: changes the limits of a pod as a whole.
//!
//! For a pod below a caller's cgroup the caller (kubelet) sets the limits of that cgroup itself before it sends the
//! request. For a pod with a cgroup of its own they are set here. Either way they are stored and reported.

use std::sync::Arc;

use cgroup::{Group, GroupPath};
use nri::Event;

use crate::{
    Error,
    container::vm,
    error::failed,
    node::pod_limits,
    operation::{blocking, to_completion},
    parts::Parts,
    plugins,
    store::{Sandbox, SandboxPhase},
};

/// Changes the limits and the overhead of a pod; absent arguments leave them as they are.
pub(crate) async fn update(
    parts: &Arc<Parts>,
    id: &str,
    overhead: Option<oci::Resources>,
    resources: Option<oci::Resources>,
) -> Result<(), Error> {
    let (parts, sandbox) = (Arc::clone(parts), parts.registry.sandbox(id)?);
    to_completion(async move {
        let operation = format!("update pod {}", sandbox.id());
        update_locked(&parts, &sandbox, overhead, resources).await.map_err(|e| e.during(operation))
    })
    .await
}

async fn update_locked(
    parts: &Arc<Parts>,
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
    plugins::update_pod(parts, sandbox, overhead.as_ref(), resources.as_ref()).await?;
    let limits = pod_limits(resources.as_ref(), overhead.as_ref())?;
    let size = match vm::is_vm(parts, sandbox) {
        true => Some(vm::grow(parts, sandbox, vm::Change::Pod(resources.as_ref())).await?),
        false => None,
    };
    if let (None, Some(size)) = (&config.cgroup_parent, &size) {
        vm::shrink_for_pod(parts, sandbox, resources.as_ref(), size).await;
    }
    if let (None, Some((limits, whole))) = (&config.cgroup_parent, limits) {
        let (task_parts, path) = (Arc::clone(parts), parts.node.cgroup_of(sandbox));
        blocking(move || {
            let path = GroupPath::parse(&path).map_err(failed("read the path of its cgroup"))?;
            let node = &task_parts.node;
            match Group::open(&node.trees, &path) {
                Ok(group) => group.update(&limits).map_err(failed("change the limits of its cgroup"))?,
                // The cgroup does not exist because the pod has no container yet.
                Err(_) => drop(Group::create(&node.trees, &path, &limits).map_err(failed("create its cgroup"))?),
            }
            node.register_slice(path, whole);
            Ok(())
        })
        .await?;
    }
    parts.registry.update_sandbox(sandbox, |record| (record.resources, record.overhead) = (resources, overhead))?;
    if let Some(size) = size {
        vm::shrink(parts, sandbox, size).await;
    }
    plugins::pod_event(parts, Event::PostUpdatePodSandbox, sandbox).await;
    Ok(())
}
