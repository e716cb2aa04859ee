use cri_proto::v1;

use crate::{
    handler::{Outcome, Shared},
    status::sandbox_stats,
};

/// Returns the CPU, memory and network usage of a pod, and the usage of its running containers.
pub(super) async fn handle(state: Shared, request: v1::PodSandboxStatsRequest) -> Outcome<v1::PodSandboxStatsResponse> {
    // Kubelet passes an empty id to check whether this RPC is implemented; `NotFound` shows that it is.
    let stats = state.engine.sandbox_stats(&request.pod_sandbox_id).await?;
    Ok(v1::PodSandboxStatsResponse { stats: Some(sandbox_stats(&stats, &crate::rows::root(&state.engine))) })
}
