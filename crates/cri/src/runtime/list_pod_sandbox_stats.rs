use cri_proto::{encoded, v1};

use crate::handler::{Outcome, Shared};

/// Lists the resource usage of ready pods that match the filter.
pub(super) async fn handle(
    state: Shared,
    request: v1::ListPodSandboxStatsRequest,
) -> Outcome<encoded::ListPodSandboxStatsResponse> {
    Ok(state.rows.pod_sandbox_stats(request.filter.into()).await.into())
}
