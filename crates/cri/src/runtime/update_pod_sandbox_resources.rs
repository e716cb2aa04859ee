use cri_proto::v1;

use crate::{
    config,
    handler::{Outcome, Shared},
};

/// Updates the limits of a pod. They are applied if the runtime manages the pod's cgroup; if the caller does, they are
/// only recorded.
pub(super) async fn handle(
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
