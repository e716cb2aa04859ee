use cri_proto::v1;

use crate::{
    handler::{Outcome, Shared},
    status::{filesystem, now},
};

/// Returns the disk usage of images and writable layers.
pub(super) async fn handle(state: Shared, _: v1::ImageFsInfoRequest) -> Outcome<v1::ImageFsInfoResponse> {
    let images = state.engine.images();
    let usage = filesystem(now(), &images.root().to_string_lossy(), images.usage());
    // Images and writable layers share one file system; kubelet recognizes this by the equal mount points.
    Ok(v1::ImageFsInfoResponse { image_filesystems: vec![usage.clone()], container_filesystems: vec![usage] })
}
