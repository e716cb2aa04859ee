use cri_proto::{encoded, v1};

use crate::{
    handler::{Outcome, Shared, Streamed},
    rows,
};

/// Sends the rows of `ListContainers` in messages of bounded size.
pub(super) async fn handle(
    state: Shared,
    request: v1::StreamContainersRequest,
) -> Outcome<Streamed<encoded::StreamContainersResponse>> {
    Ok(rows::in_parts(state.rows.containers(request.filter.into())))
}
