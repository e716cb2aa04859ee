use cri_proto::{encoded, v1};

use crate::{
    handler::{Outcome, Shared, Streamed},
    rows,
};

/// Sends the rows of `ListPodSandbox` in messages of bounded size.
pub(super) async fn handle(
    state: Shared,
    request: v1::StreamPodSandboxesRequest,
) -> Outcome<Streamed<encoded::StreamPodSandboxesResponse>> {
    Ok(rows::in_parts(state.rows.pod_sandboxes(request.filter.into())))
}
