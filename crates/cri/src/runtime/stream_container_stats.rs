use cri_proto::{encoded, v1};

use crate::{
    answer::{Outcome, Shared, Streamed},
    rows,
};

/// The rows of `ListContainerStats` in parts, each of a bounded size.
pub(super) async fn answer(
    state: Shared,
    request: v1::StreamContainerStatsRequest,
) -> Outcome<Streamed<encoded::StreamContainerStatsResponse>> {
    Ok(rows::in_parts(rows::container_stats(&state, request.filter.into()).await))
}
