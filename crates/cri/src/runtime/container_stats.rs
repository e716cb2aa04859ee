use cri_proto::v1;

use crate::{
    handler::{Outcome, Shared},
    status::container_stats,
};

/// Returns the CPU, memory and disk usage of a container.
pub(super) async fn handle(state: Shared, request: v1::ContainerStatsRequest) -> Outcome<v1::ContainerStatsResponse> {
    let stats = state.engine.container_stats(&request.container_id).await?;
    Ok(v1::ContainerStatsResponse { stats: Some(container_stats(&stats, &crate::rows::root(&state.engine))) })
}
