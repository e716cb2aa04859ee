use cri_proto::{encoded, v1};

use crate::handler::{Outcome, Shared};

/// Lists the containers that match the filter.
pub(super) async fn handle(
    state: Shared,
    request: v1::ListContainersRequest,
) -> Outcome<encoded::ListContainersResponse> {
    Ok(state.rows.containers(request.filter.into()).into())
}
