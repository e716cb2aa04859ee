use cri_proto::v1;

use crate::{
    after_exit,
    handler::{Outcome, Shared},
};

/// Starts a container; returns when its program has been executed, or has failed to execute.
pub(super) async fn handle(state: Shared, request: v1::StartContainerRequest) -> Outcome<v1::StartContainerResponse> {
    let started = state.engine.start_container(&request.container_id).await;
    // A container that failed to start has exited, so the cleanup applies to it too.
    after_exit::container_started(&state, &request.container_id);
    started?;
    Ok(v1::StartContainerResponse {})
}
