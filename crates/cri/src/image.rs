//! `ImageService`: maps each RPC to the function that handles it.

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
    handler::{RpcResult, Shared, Streamed, handle_cancellable, handle_stream, handle_to_completion},
    rpc::Rpc,
};

/// Implements the image service of the CRI.
pub(crate) struct Images(pub(crate) Shared);

#[tonic::async_trait]
impl ImageService for Images {
    async fn list_images(&self, request: Request<v1::ListImagesRequest>) -> RpcResult<v1::ListImagesResponse> {
        handle_cancellable(Rpc::ListImages, &self.0, request, list_images::handle).await
    }
    async fn image_status(&self, request: Request<v1::ImageStatusRequest>) -> RpcResult<v1::ImageStatusResponse> {
        handle_cancellable(Rpc::ImageStatus, &self.0, request, image_status::handle).await
    }
    async fn pull_image(&self, request: Request<v1::PullImageRequest>) -> RpcResult<v1::PullImageResponse> {
        // Cancelling the request does not cancel the pull at once, so that a client that retries soon joins it.
        handle_cancellable(Rpc::PullImage, &self.0, request, pull_image::handle).await
    }
    async fn remove_image(&self, request: Request<v1::RemoveImageRequest>) -> RpcResult<v1::RemoveImageResponse> {
        handle_to_completion(Rpc::RemoveImage, &self.0, request, remove_image::handle).await
    }
    async fn image_fs_info(&self, request: Request<v1::ImageFsInfoRequest>) -> RpcResult<v1::ImageFsInfoResponse> {
        handle_cancellable(Rpc::ImageFsInfo, &self.0, request, image_fs_info::handle).await
    }

    type StreamImagesStream = Streamed<v1::StreamImagesResponse>;
    async fn stream_images(&self, request: Request<v1::StreamImagesRequest>) -> RpcResult<Self::StreamImagesStream> {
        handle_stream(Rpc::StreamImages, &self.0, request, stream_images::handle).await
    }
}

/// Returns the image reference of a request.
fn reference(spec: Option<v1::ImageSpec>) -> Result<String, Failure> {
    match spec {
        Some(spec) if !spec.image.is_empty() => Ok(spec.image),
        _ => Err(Failure::invalid("image.image", "must not be empty")),
    }
}
