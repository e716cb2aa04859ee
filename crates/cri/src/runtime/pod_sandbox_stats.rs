use cri_proto::v1;

use crate::{
    answer::{Outcome, Shared},
    status::sandbox_stats,
};

/// One pod's use of CPU, memory and network, with that of its running containers.
pub(super) async fn answer(state: Shared, request: v1::PodSandboxStatsRequest) -> Outcome<v1::PodSandboxStatsResponse> {
    // Kubelet asks for the pod "" to see whether this is implemented: it is, and there is no such pod.
    let stats = state.engine.sandbox_stats(&request.pod_sandbox_id).await?;
    Ok(v1::PodSandboxStatsResponse { stats: Some(sandbox_stats(&stats, &crate::rows::root(&state))) })
}
