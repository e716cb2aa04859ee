use cri_proto::{encoded, v1};

use crate::{
    answer::{Outcome, Shared, Streamed},
    rows,
};

/// The rows of `ListPodSandbox` in parts, each of a bounded size.
pub(super) async fn answer(
    state: Shared,
    request: v1::StreamPodSandboxesRequest,
) -> Outcome<Streamed<encoded::StreamPodSandboxesResponse>> {
    Ok(rows::in_parts(rows::pod_sandboxes(&state, request.filter.into())))
}
