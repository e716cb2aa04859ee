use cri_proto::{encoded, v1};

use crate::{
    answer::{Outcome, Shared},
    rows,
};

/// Metrics of all ready pods.
pub(super) async fn answer(
    state: Shared,
    _: v1::ListPodSandboxMetricsRequest,
) -> Outcome<encoded::ListPodSandboxMetricsResponse> {
    Ok(rows::pod_sandbox_metrics(&state).await.into())
}
