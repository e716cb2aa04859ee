use cri_proto::{encoded, v1};

use crate::{
    handler::{Outcome, Shared},
    rows,
};

/// Lists the pods that match the filter.
pub(super) async fn handle(
    state: Shared,
    request: v1::ListPodSandboxRequest,
) -> Outcome<encoded::ListPodSandboxResponse> {
    Ok(rows::pod_sandboxes(&state, request.filter.into()).into())
}
