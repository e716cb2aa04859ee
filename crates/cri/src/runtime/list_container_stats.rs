use std::collections::HashMap;

use cri_proto::v1;
use pod::{ContainerState, ContainerStatus};

use crate::{
    answer::{Outcome, Shared},
    status::{ContainerFilter, stats},
};

/// The same of all running containers that the filter lets through.
pub(super) async fn answer(
    state: Shared,
    request: v1::ListContainerStatsRequest,
) -> Outcome<v1::ListContainerStatsResponse> {
    let filter = ContainerFilter::from(request.filter);
    let containers = state.engine.containers();
    state.rates.keep(&containers.iter().map(|c| c.id.as_str()).collect());
    let wanted: HashMap<&str, &ContainerStatus> = containers
        .iter()
        .filter(|c| c.state == ContainerState::Running && filter.fits(c))
        .map(|c| (c.id.as_str(), c))
        .collect();
    let root = state.engine.images().root();
    let samples = state.engine.all_container_stats();
    let rows =
        samples.iter().filter_map(|s| wanted.get(s.id.as_str()).map(|c| stats(s, &c.config, &state.rates, root)));
    Ok(v1::ListContainerStatsResponse { stats: rows.collect() })
}
