use cri_proto::v1;

use crate::answer::{Outcome, Shared, gone_is_fine};

/// Removes a pod and its containers; a pod that is not there is removed.
pub(super) async fn answer(
    state: Shared,
    request: v1::RemovePodSandboxRequest,
) -> Outcome<v1::RemovePodSandboxResponse> {
    gone_is_fine(state.engine.remove_sandbox(&request.pod_sandbox_id).await)?;
    Ok(v1::RemovePodSandboxResponse {})
}
