use cri_proto::pinion as proto;

use crate::handler::{Outcome, Shared};

/// Removes one tag from an image; a missing tag is not an error.
pub(super) async fn handle(state: Shared, request: proto::UntagRequest) -> Outcome<proto::UntagResponse> {
    state.engine.images().untag(&request.name).await?;
    Ok(proto::UntagResponse {})
}
