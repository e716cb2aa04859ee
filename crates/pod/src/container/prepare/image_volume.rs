//! Images as volumes (KEP-4639): a whole image, or a directory or file in it.

use std::path::Path;

use image::MountOptions;
use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, openat2},
    io::Errno,
    mount::{MoveMountFlags, OpenTreeFlags, UnmountFlags, move_mount, open_tree, unmount},
};

use crate::{
    Error, Volume,
    container::selinux,
    error::failed,
    namespaces::id_map,
    parts::Parts,
    store::{Container, Sandbox},
};

/// The reason by which kubelet recognizes image volumes that could not be mounted (`k8s.io/cri-api/pkg/errors`).
const REASON: &str = "ImageVolumeMountFailed";
/// Mount point in the container's state directory to which the image is attached for a moment on kernels before 6.15.
const MOUNT_POINT: &str = "image-volume";

/// Moves [`REASON`] to the beginning of an error message: kubelet looks for it only there.
pub(crate) fn reason_first(mut error: Error) -> Error {
    let reason = format!("{REASON}: ");
    if let Some(at) = error.message.find(&reason).filter(|at| *at > 0) {
        error.message.replace_range(at..at + reason.len(), "");
        error.message.insert_str(0, &reason);
    }
    error
}

/// Mounts an image, or a path in it, detached: read-only, `nosuid`, `nodev`. Its layers are kept for as long as the
/// container exists.
pub(crate) fn open(parts: &Parts, sandbox: &Sandbox, container: &Container, volume: &Volume) -> Result<OwnedFd, Error> {
    let Some(image) = &volume.image else { return Err(Error::internal("an image volume without an image")) };
    let with_context =
        |e: Error| e.during(format_args!("{REASON}: volume {}: image {}", volume.container_path, image.image));
    let map = id_map(&parts.monitor, sandbox)?;
    let labels = selinux::labels(&container.config().security);
    let options = MountOptions { map: map.as_ref(), label: labels.as_ref().map(|labels| labels.file.as_str()) };
    let mount = parts.node.images.mount_image_with(container.id().as_str(), &image.image, &options);
    let mount = mount.map_err(|e| with_context(e.into()))?;
    if image.sub_path.as_os_str().is_empty() {
        return Ok(mount);
    }
    let directory = parts.registry.records.directory(container.id());
    clone_sub_path(mount.as_fd(), &image.sub_path, &directory.join(MOUNT_POINT))
        .map_err(|e| with_context(e.during("image_sub_path")))
}

/// Clones the file or directory at `path` in the mount. The path is resolved as if the mount were the root file system.
pub(super) fn clone_sub_path(mount: BorrowedFd<'_>, path: &Path, mount_point: &Path) -> Result<OwnedFd, Error> {
    let file = find(mount, path)?;
    match clone(file.as_fd()) {
        // Before Linux 6.15 only attached mounts can be cloned.
        Err(Errno::INVAL) => clone_attached(mount, path, mount_point),
        cloned => cloned.map_err(failed(format_args!("clone {}", path.display()))),
    }
}

fn find(mount: BorrowedFd<'_>, path: &Path) -> Result<OwnedFd, Error> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let file = loop {
        match openat2(mount, path, flags, Mode::empty(), resolve) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(errno @ (Errno::NOENT | Errno::NOTDIR | Errno::LOOP)) => {
                return Err(Error::invalid(format!("{path:?} is not in the image: {errno}")));
            }
            result => break result.map_err(failed(format_args!("open {path:?}")))?,
        }
    };
    let kind = FileType::from_raw_mode(fstat(&file).map_err(failed(format_args!("stat {path:?}")))?.st_mode);
    match kind {
        FileType::Directory | FileType::RegularFile => Ok(file),
        _ => Err(Error::invalid(format!("{path:?} is neither a directory nor a file in the image"))),
    }
}

fn clone(file: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let flags = OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::AT_EMPTY_PATH;
    open_tree(file, "", flags)
}

/// Clones a path in the mount while the mount is attached to `mount_point`.
fn clone_attached(mount: BorrowedFd<'_>, path: &Path, mount_point: &Path) -> Result<OwnedFd, Error> {
    std::fs::create_dir_all(mount_point).map_err(failed(format_args!("create {}", mount_point.display())))?;
    move_mount(mount, "", CWD, mount_point, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
        .map_err(failed(format_args!("attach the image to {}", mount_point.display())))?;
    let cloned = find(mount, path)
        .and_then(|file| clone(file.as_fd()).map_err(failed(format_args!("clone {}", path.display()))));
    let unmounted = unmount(mount_point, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW)
        .map_err(failed(format_args!("unmount {}", mount_point.display())));
    let _ = std::fs::remove_dir(mount_point);
    unmounted.and(cloned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_that_kubelet_looks_for_comes_first() {
        let moved = |message: &str| reason_first(Error::invalid(message)).message;
        assert_eq!(
            moved("create container c: ImageVolumeMountFailed: no"),
            "ImageVolumeMountFailed: create container c: no"
        );
        assert_eq!(moved("ImageVolumeMountFailed: no"), "ImageVolumeMountFailed: no");
        assert_eq!(moved("create container c: no"), "create container c: no");
    }
}
