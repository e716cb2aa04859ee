use cri_proto::{encoded, v1};

use crate::{
    answer::{Outcome, Shared},
    rows,
};

/// What running containers use, of those that the filter lets through.
pub(super) async fn answer(
    state: Shared,
    request: v1::ListContainerStatsRequest,
) -> Outcome<encoded::ListContainerStatsResponse> {
    Ok(rows::container_stats(&state, request.filter.into()).await.into())
}
