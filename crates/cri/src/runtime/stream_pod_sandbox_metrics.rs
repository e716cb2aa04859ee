use cri_proto::{encoded, v1};

use crate::{
    handler::{Outcome, Shared, Streamed},
    rows,
};

/// Sends the rows of `ListPodSandboxMetrics` in messages of bounded size.
pub(super) async fn handle(
    state: Shared,
    _: v1::StreamPodSandboxMetricsRequest,
) -> Outcome<Streamed<encoded::StreamPodSandboxMetricsResponse>> {
    Ok(rows::in_parts(state.rows.pod_sandbox_metrics().await))
}
