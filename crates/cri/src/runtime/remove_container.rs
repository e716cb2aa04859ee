use cri_proto::v1;

use crate::handler::{Outcome, Shared, ignore_not_found};

/// Removes a container, and kills it if it is running; a missing container is not an error.
pub(super) async fn handle(state: Shared, request: v1::RemoveContainerRequest) -> Outcome<v1::RemoveContainerResponse> {
    ignore_not_found(state.engine.remove_container(&request.container_id).await)?;
    Ok(v1::RemoveContainerResponse {})
}
