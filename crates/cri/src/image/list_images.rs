use cri_proto::v1;

use crate::{
    handler::{Outcome, Shared},
    status::image,
};

/// Lists all images, or the image that the filter names.
pub(super) async fn handle(state: Shared, request: v1::ListImagesRequest) -> Outcome<v1::ListImagesResponse> {
    let name = request.filter.and_then(|f| f.image).map(|spec| spec.image).unwrap_or_default();
    let images = match name.as_str() {
        "" => state.engine.images().list(),
        name => state.engine.images().find(name)?.into_iter().collect(),
    };
    Ok(v1::ListImagesResponse { images: images.iter().map(|found| image(&state.engine, found)).collect() })
}
