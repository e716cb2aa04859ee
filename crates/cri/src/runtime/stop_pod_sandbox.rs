use cri_proto::v1;

use crate::handler::{Outcome, Shared, ignore_not_found};

/// Kills all processes of a pod and detaches its network; a missing pod is not an error.
pub(super) async fn handle(state: Shared, request: v1::StopPodSandboxRequest) -> Outcome<v1::StopPodSandboxResponse> {
    ignore_not_found(state.engine.stop_sandbox(&request.pod_sandbox_id).await)?;
    Ok(v1::StopPodSandboxResponse {})
}
