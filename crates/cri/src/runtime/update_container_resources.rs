use cri_proto::v1;

use crate::{
    Failure,
    answer::{Outcome, Shared},
    config,
};

/// Changes limits; what is zero or empty stays as it is. Annotations ask for nothing that this runtime knows.
pub(super) async fn answer(
    state: Shared,
    request: v1::UpdateContainerResourcesRequest,
) -> Outcome<v1::UpdateContainerResourcesResponse> {
    if request.windows.is_some() {
        return Err(Failure::invalid("windows", "this is Linux"));
    }
    let Some(linux) = request.linux else { return Ok(v1::UpdateContainerResourcesResponse {}) };
    let limits = config::limits("linux", &linux)?;
    let oom_score_adj = Some(limits.oom_score_adj).filter(|score| *score != 0);
    state.engine.update_container(&request.container_id, limits.resources, oom_score_adj).await?;
    Ok(v1::UpdateContainerResourcesResponse {})
}
