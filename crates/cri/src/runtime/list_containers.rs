use cri_proto::{encoded, v1};

use crate::{
    answer::{Outcome, Shared},
    rows,
};

/// Containers that the filter lets through.
pub(super) async fn answer(
    state: Shared,
    request: v1::ListContainersRequest,
) -> Outcome<encoded::ListContainersResponse> {
    Ok(rows::containers(&state, request.filter.into()).into())
}
