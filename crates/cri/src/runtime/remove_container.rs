use cri_proto::v1;

use crate::answer::{Outcome, Shared, gone_is_fine};

/// Removes a container, by force if it runs; one that is not there is removed.
pub(super) async fn answer(state: Shared, request: v1::RemoveContainerRequest) -> Outcome<v1::RemoveContainerResponse> {
    gone_is_fine(state.engine.remove_container(&request.container_id).await)?;
    Ok(v1::RemoveContainerResponse {})
}
