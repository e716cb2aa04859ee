use cri_proto::{encoded, v1};

use crate::{
    answer::{Outcome, Shared, Streamed},
    rows,
};

/// The rows of `ListPodSandboxMetrics` in parts, each of a bounded size.
pub(super) async fn answer(
    state: Shared,
    _: v1::StreamPodSandboxMetricsRequest,
) -> Outcome<Streamed<encoded::StreamPodSandboxMetricsResponse>> {
    Ok(rows::in_parts(rows::pod_sandbox_metrics(&state).await))
}
