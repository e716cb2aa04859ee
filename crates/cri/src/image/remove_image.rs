use cri_proto::v1;

use super::reference;
use crate::handler::{Outcome, Shared};

/// Removes an image with all its tags; a missing image is not an error.
pub(super) async fn handle(state: Shared, request: v1::RemoveImageRequest) -> Outcome<v1::RemoveImageResponse> {
    state.engine.images().remove(&reference(request.image)?).await?;
    Ok(v1::RemoveImageResponse {})
}
