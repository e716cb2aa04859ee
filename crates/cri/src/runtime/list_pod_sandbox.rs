use cri_proto::{encoded, v1};

use crate::handler::{Outcome, Shared};

/// Lists the pods that match the filter.
pub(super) async fn handle(
    state: Shared,
    request: v1::ListPodSandboxRequest,
) -> Outcome<encoded::ListPodSandboxResponse> {
    Ok(state.rows.pod_sandboxes(request.filter.into()).into())
}
