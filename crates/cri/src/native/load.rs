use std::io;

use cri_proto::pinion as proto;
use tokio_stream::StreamExt;
use tokio_util::{bytes::Bytes, io::StreamReader};
use tonic::Streaming;

use crate::handler::{Outcome, Shared};

/// Imports an archive while it is received. No image is listed before the whole archive is verified.
pub(super) async fn handle(state: Shared, chunks: Streaming<proto::Chunk>) -> Outcome<proto::LoadResponse> {
    let bytes = chunks.map(|chunk| {
        chunk.map(|c| Bytes::from(c.data)).map_err(|status| io::Error::other(status.message().to_owned()))
    });
    let mut archive = StreamReader::new(bytes);
    let images = state.engine.images().import(&mut archive).await?;
    let names = images.into_iter().flat_map(|imported| match imported.tags.is_empty() {
        true => vec![imported.image.id],
        false => imported.tags,
    });
    Ok(proto::LoadResponse { images: names.collect() })
}
