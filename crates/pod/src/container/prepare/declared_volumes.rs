//! Volumes that an image declares (`VOLUME`), for containers with a read-only root: such a path is writable all the
//! same.
//!
//! Other engines copy the image's files at the path into a directory next to the container. Here the path is a mount of
//! the container's own writable layer, which serves the same purpose: it shows the image's files, counts towards the
//! container's disk usage, and is removed with the container. A container with a writable root needs no such mounts.

use std::collections::HashSet;

use image::ImageConfig;
use oci::Mount;
use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{Gid, Mode, OFlags, ResolveFlags, Uid, chownat, fstat, mkdirat, openat2},
    io::Errno,
};

use super::image_volume;
use crate::{ContainerConfig, Error, container::spec, error::failed};

/// Most declared volumes of an image; each one is a mount. More than any real image has.
const VOLUMES_MAX: usize = 256;
/// Paths that every container gets its own mounts on; an image must not replace them.
const RESERVED: [&str; 3] = ["/proc", "/sys", "/dev"];

/// Returns the mounts of declared volumes that the request does not cover. `root` is the container's root, not yet
/// read-only; `mount_point` is used where a kernel can clone attached mounts only.
pub(super) fn mounts(
    root: BorrowedFd<'_>,
    config: &ContainerConfig,
    image: &ImageConfig,
    mount_point: &std::path::Path,
) -> Result<Vec<spec::ExtraMount>, Error> {
    if !config.security.readonly_rootfs {
        return Ok(Vec::new());
    }
    if image.volumes.len() > VOLUMES_MAX {
        return Err(Error::invalid(format!(
            "the image declares {} volumes; at most {VOLUMES_MAX}",
            image.volumes.len()
        )));
    }
    let mut covered: HashSet<String> =
        config.volumes.iter().map(|volume| spec::normalize(&volume.container_path)).collect();
    let mut extras = Vec::new();
    for declared in &image.volumes {
        let path = spec::normalize(declared);
        let is_reserved =
            RESERVED.iter().any(|reserved| path == *reserved || path.starts_with(&format!("{reserved}/")));
        if path == "/" || is_reserved || !covered.insert(path.clone()) {
            continue;
        }
        let tree = open(root, &path, mount_point)
            .map_err(|e| e.during(format_args!("declared volume {declared:?} of the image")))?;
        let options = ["rbind", "rprivate", "rw"].map(str::to_owned).to_vec();
        let (kind, source) = (Some("bind".to_owned()), Some("image volume".to_owned()));
        let entry = Mount { destination: path, kind, source, options, ..Mount::default() };
        extras.push(spec::ExtraMount { entry, tree: Some(tree) });
    }
    Ok(extras)
}

fn open(root: BorrowedFd<'_>, path: &str, mount_point: &std::path::Path) -> Result<OwnedFd, Error> {
    create(root, path).map_err(|errno| match errno {
        Errno::NOTDIR | Errno::EXIST | Errno::LOOP => Error::invalid(format!("it is not a directory: {errno}")),
        errno => failed("create it")(errno),
    })?;
    image_volume::clone_sub_path(root, path.trim_start_matches('/').as_ref(), mount_point)
}

/// Creates every missing directory of the path, owned by the owner of its parent.
fn create(root: BorrowedFd<'_>, path: &str) -> Result<(), Errno> {
    let mut parent = directory(root, ".")?;
    let mut current = String::from(".");
    for name in path.split('/').filter(|name| !name.is_empty()) {
        current = format!("{current}/{name}");
        parent = match directory(root, &current) {
            Err(Errno::NOENT) => {
                let stat = fstat(&parent)?;
                mkdirat(&parent, name, Mode::from_raw_mode(0o755))?;
                let (uid, gid) = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
                let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
                chownat(&parent, name, Some(uid), Some(gid), flags)?;
                directory(root, &current)?
            }
            opened => opened?,
        };
    }
    Ok(())
}

fn directory(root: BorrowedFd<'_>, path: &str) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    loop {
        match openat2(root.as_fd(), path, flags, Mode::empty(), resolve) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn directories_are_created_within_the_root_only() {
        let dir = tempfile::tempdir().expect("directory");
        let root = dir.path().join("root");
        fs::create_dir(&root).expect("directory");
        symlink("/", root.join("up")).expect("symlink");
        symlink("../../../elsewhere", root.join("out")).expect("symlink");
        fs::write(root.join("file"), "").expect("file");
        let opened = rustix::fs::open(&root, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).expect("open");
        create(opened.as_fd(), "/a/b/c").expect("create");
        create(opened.as_fd(), "/up/d").expect("create");
        assert!(root.join("a/b/c").is_dir() && root.join("d").is_dir());
        assert_eq!(create(opened.as_fd(), "/out/x"), Err(Errno::EXIST), "a dangling symlink is not followed");
        assert_eq!(create(opened.as_fd(), "/file/x"), Err(Errno::NOTDIR));
        assert!(!dir.path().join("elsewhere").exists());
    }
}
