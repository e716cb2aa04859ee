use cri_proto::v1;
use futures_util::stream;

use super::list_images;
use crate::answer::{Outcome, Shared, Streamed};

/// Images in one message: an image of many tags is some kilobytes.
const PART: usize = 100;

/// The rows of `ListImages` in parts, every image in exactly one.
pub(super) async fn answer(
    state: Shared,
    request: v1::StreamImagesRequest,
) -> Outcome<Streamed<v1::StreamImagesResponse>> {
    let list = list_images::answer(state, v1::ListImagesRequest { filter: request.filter }).await?;
    let mut images = list.images.into_iter();
    Ok(Box::pin(stream::iter(std::iter::from_fn(move || {
        let images: Vec<_> = images.by_ref().take(PART).collect();
        (!images.is_empty()).then_some(Ok(v1::StreamImagesResponse { images }))
    }))))
}
