use cri_proto::{encoded, v1};

use crate::handler::{Outcome, Shared};

/// Lists the metrics of all ready pods.
pub(super) async fn handle(
    state: Shared,
    _: v1::ListPodSandboxMetricsRequest,
) -> Outcome<encoded::ListPodSandboxMetricsResponse> {
    Ok(state.rows.pod_sandbox_metrics().await.into())
}
