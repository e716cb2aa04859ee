use std::collections::HashMap;

use cri_proto::v1;

use super::reference;
use crate::{
    handler::{Outcome, Shared},
    status::{image, image_info},
};

/// Returns an image by tag, digest or id; `verbose` adds its configuration.
pub(super) async fn handle(state: Shared, request: v1::ImageStatusRequest) -> Outcome<v1::ImageStatusResponse> {
    let name = reference(request.image)?;
    // A missing image is not an error: kubelet calls this to check whether the image exists.
    let Some(found) = state.engine.images().find(&name)? else { return Ok(v1::ImageStatusResponse::default()) };
    let info = if request.verbose { image_info(&found) } else { HashMap::new() };
    Ok(v1::ImageStatusResponse { image: Some(image(&state.engine, &found)), info })
}
