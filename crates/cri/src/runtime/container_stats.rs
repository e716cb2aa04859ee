use cri_proto::v1;

use crate::{
    answer::{Outcome, Shared},
    status::stats,
};

/// One container's use of CPU, memory and disk.
pub(super) async fn answer(state: Shared, request: v1::ContainerStatsRequest) -> Outcome<v1::ContainerStatsResponse> {
    let container = state.engine.container(&request.container_id)?;
    let sample = state.engine.container_stats(&container.id)?;
    let root = state.engine.images().root();
    Ok(v1::ContainerStatsResponse { stats: Some(stats(&sample, &container.config, &state.rates, root)) })
}
