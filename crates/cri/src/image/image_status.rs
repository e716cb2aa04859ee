use std::collections::HashMap;

use cri_proto::v1;

use super::named;
use crate::{
    answer::{Outcome, Shared},
    status::{image, image_info},
};

/// One image, by tag, digest or id; `verbose` adds its configuration.
pub(super) async fn answer(state: Shared, request: v1::ImageStatusRequest) -> Outcome<v1::ImageStatusResponse> {
    let name = named(request.image)?;
    // An image that is not there is no failure: kubelet asks in order to know.
    let Some(found) = state.engine.images().find(&name)? else { return Ok(v1::ImageStatusResponse::default()) };
    let info = if request.verbose { image_info(&found) } else { HashMap::new() };
    Ok(v1::ImageStatusResponse { image: Some(image(&found)), info })
}
