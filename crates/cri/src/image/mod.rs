//! `ImageService`: this file only says which function answers which RPC.

mod image_fs_info;
mod image_status;
mod list_images;
mod pull_image;
mod remove_image;

use cri_proto::v1::{self, image_service_server::ImageService};
use tokio_stream::Empty;
use tonic::{Request, Status};

use crate::{
    Failure,
    answer::{Answer, Shared, changing, reading},
};

/// Answers the image half of the CRI.
pub(crate) struct Images(pub(crate) Shared);

#[tonic::async_trait]
impl ImageService for Images {
    async fn list_images(&self, request: Request<v1::ListImagesRequest>) -> Answer<v1::ListImagesResponse> {
        reading("ListImages", list_images::answer(self.0.clone(), request.into_inner())).await
    }
    async fn image_status(&self, request: Request<v1::ImageStatusRequest>) -> Answer<v1::ImageStatusResponse> {
        reading("ImageStatus", image_status::answer(self.0.clone(), request.into_inner())).await
    }
    async fn pull_image(&self, request: Request<v1::PullImageRequest>) -> Answer<v1::PullImageResponse> {
        changing("PullImage", pull_image::answer(self.0.clone(), request.into_inner())).await
    }
    async fn remove_image(&self, request: Request<v1::RemoveImageRequest>) -> Answer<v1::RemoveImageResponse> {
        changing("RemoveImage", remove_image::answer(self.0.clone(), request.into_inner())).await
    }
    async fn image_fs_info(&self, request: Request<v1::ImageFsInfoRequest>) -> Answer<v1::ImageFsInfoResponse> {
        reading("ImageFsInfo", image_fs_info::answer(self.0.clone(), request.into_inner())).await
    }

    type StreamImagesStream = Empty<Result<v1::StreamImagesResponse, Status>>;
    async fn stream_images(&self, _: Request<v1::StreamImagesRequest>) -> Answer<Self::StreamImagesStream> {
        Err(Failure::unimplemented("StreamImages", "use ListImages").into())
    }
}

/// The image that a request names.
fn named(spec: Option<v1::ImageSpec>) -> Result<String, Failure> {
    match spec {
        Some(spec) if !spec.image.is_empty() => Ok(spec.image),
        _ => Err(Failure::invalid("image.image", "must not be empty")),
    }
}
