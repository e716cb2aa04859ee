use cri_proto::{encoded, v1};

use crate::handler::{Outcome, Shared};

/// Lists the resource usage of running containers that match the filter.
pub(super) async fn handle(
    state: Shared,
    request: v1::ListContainerStatsRequest,
) -> Outcome<encoded::ListContainerStatsResponse> {
    Ok(state.rows.container_stats(request.filter.into()).await.into())
}
