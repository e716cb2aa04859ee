use cri_proto::v1;

use crate::{
    answer::{Outcome, Shared},
    status::{filesystem, now},
};

/// What images and writable layers take.
pub(super) async fn answer(state: Shared, _: v1::ImageFsInfoRequest) -> Outcome<v1::ImageFsInfoResponse> {
    let images = state.engine.images();
    let usage = filesystem(now(), &images.root().to_string_lossy(), images.usage());
    // Images and writable layers share one file system: kubelet tells so by the equal mount points.
    Ok(v1::ImageFsInfoResponse { image_filesystems: vec![usage.clone()], container_filesystems: vec![usage] })
}
