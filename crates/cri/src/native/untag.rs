use cri_proto::pinion as proto;

use crate::answer::{Outcome, Shared};

/// Takes one tag from an image; one that is not there is taken.
pub(super) async fn answer(state: Shared, request: proto::UntagRequest) -> Outcome<proto::UntagResponse> {
    state.engine.images().untag(&request.name).await?;
    Ok(proto::UntagResponse {})
}
