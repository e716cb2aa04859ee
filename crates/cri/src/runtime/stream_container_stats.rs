use cri_proto::{encoded, v1};

use crate::{
    handler::{Outcome, Shared, Streamed},
    rows,
};

/// Sends the rows of `ListContainerStats` in messages of bounded size.
pub(super) async fn handle(
    state: Shared,
    request: v1::StreamContainerStatsRequest,
) -> Outcome<Streamed<encoded::StreamContainerStatsResponse>> {
    Ok(rows::in_parts(state.rows.container_stats(request.filter.into()).await))
}
