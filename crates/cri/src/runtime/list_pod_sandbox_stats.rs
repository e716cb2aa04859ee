use cri_proto::{encoded, v1};

use crate::{
    answer::{Outcome, Shared},
    rows,
};

/// What ready pods use, of those that the filter lets through.
pub(super) async fn answer(
    state: Shared,
    request: v1::ListPodSandboxStatsRequest,
) -> Outcome<encoded::ListPodSandboxStatsResponse> {
    Ok(rows::pod_sandbox_stats(&state, request.filter.into()).await.into())
}
