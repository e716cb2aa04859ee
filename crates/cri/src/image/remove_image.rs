use cri_proto::v1;

use super::named;
use crate::answer::{Outcome, Shared};

/// Removes an image with all its names; one that is not there is removed.
pub(super) async fn answer(state: Shared, request: v1::RemoveImageRequest) -> Outcome<v1::RemoveImageResponse> {
    state.engine.images().remove(&named(request.image)?).await?;
    Ok(v1::RemoveImageResponse {})
}
