use cri_proto::v1;

use crate::handler::{Outcome, Shared};

/// Starts a container; returns when its program has been executed, or has failed to execute.
pub(super) async fn handle(state: Shared, request: v1::StartContainerRequest) -> Outcome<v1::StartContainerResponse> {
    state.engine.start_container(&request.container_id).await?;
    Ok(v1::StartContainerResponse {})
}
