use cri_proto::{encoded, v1};

use crate::{
    answer::{Outcome, Shared},
    rows,
};

/// Pods that the filter lets through.
pub(super) async fn answer(
    state: Shared,
    request: v1::ListPodSandboxRequest,
) -> Outcome<encoded::ListPodSandboxResponse> {
    Ok(rows::pod_sandboxes(&state, request.filter.into()).into())
}
