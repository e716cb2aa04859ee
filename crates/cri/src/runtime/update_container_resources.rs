use cri_proto::v1;

use crate::{
    answer::{Outcome, Shared},
    config,
};

/// Changes limits of a container while it runs.
pub(super) async fn answer(
    state: Shared,
    request: v1::UpdateContainerResourcesRequest,
) -> Outcome<v1::UpdateContainerResourcesResponse> {
    let Some(linux) = request.linux else { return Ok(v1::UpdateContainerResourcesResponse {}) };
    let limits = config::limits("linux", &linux)?;
    state.engine.update_container(&request.container_id, limits.resources).await?;
    Ok(v1::UpdateContainerResourcesResponse {})
}
