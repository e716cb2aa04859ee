use cri_proto::v1;

use crate::{
    answer::{Outcome, Shared},
    ended,
};

/// Answers when the container's program runs, or could not be run.
pub(super) async fn answer(state: Shared, request: v1::StartContainerRequest) -> Outcome<v1::StartContainerResponse> {
    let started = state.engine.start_container(&request.container_id).await;
    // One that could not be started ended, too.
    ended::started(&state, &request.container_id);
    started?;
    Ok(v1::StartContainerResponse {})
}
