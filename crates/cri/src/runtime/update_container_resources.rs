use cri_proto::v1;

use crate::{
    Failure, config,
    handler::{Outcome, Shared},
};

/// Updates the limits of a container; values that are zero or empty do not change. Annotations are ignored.
pub(super) async fn handle(
    state: Shared,
    request: v1::UpdateContainerResourcesRequest,
) -> Outcome<v1::UpdateContainerResourcesResponse> {
    if request.windows.is_some() {
        return Err(Failure::invalid("windows", "is not supported on Linux"));
    }
    let Some(linux) = request.linux else { return Ok(v1::UpdateContainerResourcesResponse {}) };
    let limits = config::limits("linux", &linux)?;
    let oom_score_adj = Some(limits.oom_score_adj).filter(|score| *score != 0);
    state.engine.update_container(&request.container_id, limits.resources, oom_score_adj).await?;
    Ok(v1::UpdateContainerResourcesResponse {})
}
