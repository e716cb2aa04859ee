use cri_proto::{encoded, v1};

use crate::{
    answer::{Outcome, Shared, Streamed},
    rows,
};

/// The rows of `ListPodSandboxStats` in parts, each of a bounded size.
pub(super) async fn answer(
    state: Shared,
    request: v1::StreamPodSandboxStatsRequest,
) -> Outcome<Streamed<encoded::StreamPodSandboxStatsResponse>> {
    Ok(rows::in_parts(rows::pod_sandbox_stats(&state, request.filter.into()).await))
}
