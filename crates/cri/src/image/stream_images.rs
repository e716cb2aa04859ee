use cri_proto::v1;
use futures_util::stream;

use super::list_images;
use crate::handler::{Outcome, Shared, Streamed};

/// Images per message: an image with many tags takes a few kilobytes.
const PART: usize = 100;

/// Sends the images of `ListImages` in several messages, each image once.
pub(super) async fn handle(
    state: Shared,
    request: v1::StreamImagesRequest,
) -> Outcome<Streamed<v1::StreamImagesResponse>> {
    let list = list_images::handle(state, v1::ListImagesRequest { filter: request.filter }).await?;
    let mut images = list.images.into_iter();
    Ok(Box::pin(stream::iter(std::iter::from_fn(move || {
        let images: Vec<_> = images.by_ref().take(PART).collect();
        (!images.is_empty()).then_some(Ok(v1::StreamImagesResponse { images }))
    }))))
}
