use cri_proto::v1;

use crate::{
    answer::{Outcome, Shared},
    config,
};

/// Remembers the limits of the pod as a whole, and keeps to them where the pod's cgroup is ours and not the caller's.
pub(super) async fn answer(
    state: Shared,
    request: v1::UpdatePodSandboxResourcesRequest,
) -> Outcome<v1::UpdatePodSandboxResourcesResponse> {
    let limits = |at, message: Option<v1::LinuxContainerResources>| {
        message.map(|message| config::limits(at, &message)).transpose().map(|limits| limits.map(|l| l.resources))
    };
    let overhead = limits("overhead", request.overhead)?;
    let resources = limits("resources", request.resources)?;
    state.engine.update_sandbox(&request.pod_sandbox_id, overhead, resources).await?;
    Ok(v1::UpdatePodSandboxResourcesResponse {})
}
