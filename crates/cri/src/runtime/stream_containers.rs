use cri_proto::{encoded, v1};

use crate::{
    answer::{Outcome, Shared, Streamed},
    rows,
};

/// The rows of `ListContainers` in parts, each of a bounded size.
pub(super) async fn answer(
    state: Shared,
    request: v1::StreamContainersRequest,
) -> Outcome<Streamed<encoded::StreamContainersResponse>> {
    Ok(rows::in_parts(rows::containers(&state, request.filter.into())))
}
