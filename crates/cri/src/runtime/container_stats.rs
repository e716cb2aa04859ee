use cri_proto::v1;

use crate::{
    answer::{Outcome, Shared},
    status::container_stats,
};

/// One container's use of CPU, memory and disk.
pub(super) async fn answer(state: Shared, request: v1::ContainerStatsRequest) -> Outcome<v1::ContainerStatsResponse> {
    let stats = state.engine.container_stats(&request.container_id).await?;
    Ok(v1::ContainerStatsResponse { stats: Some(container_stats(&stats, &crate::rows::root(&state))) })
}
