use cri_proto::v1;

use crate::{
    answer::{Outcome, Shared},
    status::image,
};

/// All images, or the one that the filter names.
pub(super) async fn answer(state: Shared, request: v1::ListImagesRequest) -> Outcome<v1::ListImagesResponse> {
    let name = request.filter.and_then(|f| f.image).map(|spec| spec.image).unwrap_or_default();
    let found = match name.as_str() {
        "" => state.engine.images().list(),
        name => state.engine.images().find(name)?.into_iter().collect(),
    };
    Ok(v1::ListImagesResponse { images: found.iter().map(image).collect() })
}
