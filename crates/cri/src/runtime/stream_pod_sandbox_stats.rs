use cri_proto::{encoded, v1};

use crate::{
    handler::{Outcome, Shared, Streamed},
    rows,
};

/// Sends the rows of `ListPodSandboxStats` in messages of bounded size.
pub(super) async fn handle(
    state: Shared,
    request: v1::StreamPodSandboxStatsRequest,
) -> Outcome<Streamed<encoded::StreamPodSandboxStatsResponse>> {
    Ok(rows::in_parts(state.rows.pod_sandbox_stats(request.filter.into()).await))
}
