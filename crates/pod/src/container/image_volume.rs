//! Images as volumes (KEP-4639): all of an image, or a directory or file of it.

use std::path::Path;

use image::Appearance;
use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, openat2},
    io::Errno,
    mount::{MoveMountFlags, OpenTreeFlags, UnmountFlags, move_mount, open_tree, unmount},
};

use super::{Container, Volume, selinux};
use crate::{
    Error,
    engine::Inner,
    error::failed,
    sandbox::{Sandbox, id_map},
    state::Kind,
};

/// By which kubelet counts image volumes that could not be mounted (`k8s.io/cri-api/pkg/errors`).
const REASON: &str = "ImageVolumeMountFailed";
/// Where an older kernel has the image attached for a moment, in the record's directory.
const POINT: &str = "image-volume";

/// Kubelet looks at the beginning of an error only.
pub(crate) fn lead(mut error: Error) -> Error {
    let word = format!("{REASON}: ");
    if let Some(at) = error.message.find(&word).filter(|at| *at > 0) {
        error.message.replace_range(at..at + word.len(), "");
        error.message.insert_str(0, &word);
    }
    error
}

/// Read-only, no setuid, no devices. Its layers stay as long as the container does.
pub(crate) fn open(
    engine: &Inner,
    sandbox: &Sandbox,
    container: &Container,
    volume: &Volume,
) -> Result<OwnedFd, Error> {
    let Some(image) = &volume.image else { return Err(Error::internal("an image volume without an image")) };
    let told = |e: Error| e.during(format_args!("{REASON}: volume {}: image {}", volume.container_path, image.image));
    let map = id_map(engine, sandbox)?;
    let labels = selinux::labels(&container.config().security);
    let appearance = Appearance { map: map.as_ref(), label: labels.as_ref().map(|labels| labels.file.as_str()) };
    let mount = engine.images.mount_image_as(container.id(), &image.image, &appearance);
    let mount = mount.map_err(|e| told(e.into()))?;
    if image.sub_path.as_os_str().is_empty() {
        return Ok(mount);
    }
    let directory = engine.records.directory(Kind::Container, container.id());
    part(mount.as_fd(), &image.sub_path, &directory.join(POINT)).map_err(|e| told(e.during("image_sub_path")))
}

/// A clone of what is at `path` in the mount, which is resolved as if the mount were the root of everything.
pub(super) fn part(mount: BorrowedFd<'_>, path: &Path, point: &Path) -> Result<OwnedFd, Error> {
    let found = find(mount, path)?;
    match clone(found.as_fd()) {
        // Before Linux 6.15 only what is attached can be cloned.
        Err(Errno::INVAL) => attached(mount, path, point),
        cloned => cloned.map_err(failed(format_args!("clone {}", path.display()))),
    }
}

fn find(mount: BorrowedFd<'_>, path: &Path) -> Result<OwnedFd, Error> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let found = loop {
        match openat2(mount, path, flags, Mode::empty(), resolve) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(errno @ (Errno::NOENT | Errno::NOTDIR | Errno::LOOP)) => {
                return Err(Error::invalid(format!("{path:?} is not in the image: {errno}")));
            }
            result => break result.map_err(failed(format_args!("open {path:?}")))?,
        }
    };
    let kind = FileType::from_raw_mode(fstat(&found).map_err(failed("ask what it is"))?.st_mode);
    match kind {
        FileType::Directory | FileType::RegularFile => Ok(found),
        _ => Err(Error::invalid(format!("{path:?} is neither a directory nor a file in the image"))),
    }
}

fn clone(of: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let flags = OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::AT_EMPTY_PATH;
    open_tree(of, "", flags)
}

fn attached(mount: BorrowedFd<'_>, path: &Path, point: &Path) -> Result<OwnedFd, Error> {
    std::fs::create_dir_all(point).map_err(failed(format_args!("create {}", point.display())))?;
    move_mount(mount, "", CWD, point, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
        .map_err(failed(format_args!("attach at {}", point.display())))?;
    let cloned = find(mount, path)
        .and_then(|found| clone(found.as_fd()).map_err(failed(format_args!("clone {}", path.display()))));
    let detached = unmount(point, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW)
        .map_err(failed(format_args!("unmount {}", point.display())));
    let _ = std::fs::remove_dir(point);
    detached.and(cloned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_that_kubelet_looks_for_comes_first() {
        let led = |message: &str| lead(Error::invalid(message)).message;
        assert_eq!(
            led("create container c: ImageVolumeMountFailed: no"),
            "ImageVolumeMountFailed: create container c: no"
        );
        assert_eq!(led("ImageVolumeMountFailed: no"), "ImageVolumeMountFailed: no");
        assert_eq!(led("create container c: no"), "create container c: no");
    }
}
