//! `ImageService`: this file only says which function answers which RPC.

mod image_fs_info;
mod image_status;
mod list_images;
mod pull_image;
mod remove_image;
mod stream_images;

use cri_proto::{server::image_service_server::ImageService, v1};
use tonic::Request;

use crate::{
    Failure,
    answer::{Answer, Shared, Streamed, changing, reading, streaming},
    rpc::Rpc,
};

/// Answers the image half of the CRI.
pub(crate) struct Images(pub(crate) Shared);

#[tonic::async_trait]
impl ImageService for Images {
    async fn list_images(&self, request: Request<v1::ListImagesRequest>) -> Answer<v1::ListImagesResponse> {
        reading(Rpc::ListImages, &self.0, request, list_images::answer).await
    }
    async fn image_status(&self, request: Request<v1::ImageStatusRequest>) -> Answer<v1::ImageStatusResponse> {
        reading(Rpc::ImageStatus, &self.0, request, image_status::answer).await
    }
    async fn pull_image(&self, request: Request<v1::PullImageRequest>) -> Answer<v1::PullImageResponse> {
        // The pull itself outlives a caller that comes back soon.
        reading(Rpc::PullImage, &self.0, request, pull_image::answer).await
    }
    async fn remove_image(&self, request: Request<v1::RemoveImageRequest>) -> Answer<v1::RemoveImageResponse> {
        changing(Rpc::RemoveImage, &self.0, request, remove_image::answer).await
    }
    async fn image_fs_info(&self, request: Request<v1::ImageFsInfoRequest>) -> Answer<v1::ImageFsInfoResponse> {
        reading(Rpc::ImageFsInfo, &self.0, request, image_fs_info::answer).await
    }

    type StreamImagesStream = Streamed<v1::StreamImagesResponse>;
    async fn stream_images(&self, request: Request<v1::StreamImagesRequest>) -> Answer<Self::StreamImagesStream> {
        streaming(Rpc::StreamImages, &self.0, request, stream_images::answer).await
    }
}

/// The image that a request names.
fn named(spec: Option<v1::ImageSpec>) -> Result<String, Failure> {
    match spec {
        Some(spec) if !spec.image.is_empty() => Ok(spec.image),
        _ => Err(Failure::invalid("image.image", "must not be empty")),
    }
}
