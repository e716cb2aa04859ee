use cri_proto::v1;

use crate::handler::{Outcome, Shared, ignore_not_found};

/// Removes a pod and its containers; a missing pod is not an error.
pub(super) async fn handle(
    state: Shared,
    request: v1::RemovePodSandboxRequest,
) -> Outcome<v1::RemovePodSandboxResponse> {
    ignore_not_found(state.engine.remove_sandbox(&request.pod_sandbox_id).await)?;
    Ok(v1::RemovePodSandboxResponse {})
}
