use cri_proto::v1;

use crate::answer::{Outcome, Shared, gone_is_fine};

/// Ends all processes of a pod and gives back its network; a pod that is not there is stopped.
pub(super) async fn answer(state: Shared, request: v1::StopPodSandboxRequest) -> Outcome<v1::StopPodSandboxResponse> {
    gone_is_fine(state.engine.stop_sandbox(&request.pod_sandbox_id).await)?;
    Ok(v1::StopPodSandboxResponse {})
}
