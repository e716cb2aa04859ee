//! Volumes that an image declares (`VOLUME`), for containers whose root is read-only: such a path can be written all
//! the same.
//!
//! Other engines copy what the image has there into a directory beside the container. Here the path is a mount of the
//! container's own writable layer, which is what that directory would be: it has the image's files, is counted with the
//! container, and goes with it. A container whose root can be written needs none.

use std::collections::HashSet;

use image::ImageConfig;
use oci::Mount;
use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{Gid, Mode, OFlags, ResolveFlags, Uid, chownat, fstat, mkdirat, openat2},
    io::Errno,
};

use super::{ContainerConfig, image_volume, spec};
use crate::{Error, error::failed};

/// More than any image has; each is a mount.
const MOST: usize = 256;
/// What a container has of its own, and an image must not replace.
const OWN: [&str; 3] = ["/proc", "/sys", "/dev"];

/// Those that the request does not mount anyway; `root` is the container's root, not yet read-only.
pub(super) fn mounts(
    root: BorrowedFd<'_>,
    config: &ContainerConfig,
    image: &ImageConfig,
    point: &std::path::Path,
) -> Result<Vec<spec::Extra>, Error> {
    if !config.security.readonly_rootfs {
        return Ok(Vec::new());
    }
    if image.volumes.len() > MOST {
        return Err(Error::invalid(format!("the image declares {} volumes; at most {MOST}", image.volumes.len())));
    }
    let mut covered: HashSet<String> =
        config.volumes.iter().map(|volume| spec::normal(&volume.container_path)).collect();
    let mut extras = Vec::new();
    for declared in &image.volumes {
        let path = spec::normal(declared);
        let own = OWN.iter().any(|own| path == *own || path.starts_with(&format!("{own}/")));
        if path == "/" || own || !covered.insert(path.clone()) {
            continue;
        }
        let tree = open(root, &path, point)
            .map_err(|e| e.during(format_args!("volume {declared:?} that the image declares")))?;
        let options = ["rbind", "rprivate", "rw"].map(str::to_owned).to_vec();
        let (kind, source) = (Some("bind".to_owned()), Some("image volume".to_owned()));
        let entry = Mount { destination: path, kind, source, options, ..Mount::default() };
        extras.push(spec::Extra { entry, tree: Some(tree) });
    }
    Ok(extras)
}

fn open(root: BorrowedFd<'_>, path: &str, point: &std::path::Path) -> Result<OwnedFd, Error> {
    make(root, path).map_err(|errno| match errno {
        Errno::NOTDIR | Errno::EXIST | Errno::LOOP => Error::invalid(format!("it leads to no directory: {errno}")),
        errno => failed("make it")(errno),
    })?;
    image_volume::part(root, path.trim_start_matches('/').as_ref(), point)
}

/// Every directory on the way that is missing; each belongs to whom its parent belongs to.
fn make(root: BorrowedFd<'_>, path: &str) -> Result<(), Errno> {
    let mut parent = directory(root, ".")?;
    let mut here = String::from(".");
    for name in path.split('/').filter(|name| !name.is_empty()) {
        here = format!("{here}/{name}");
        parent = match directory(root, &here) {
            Err(Errno::NOENT) => {
                let about = fstat(&parent)?;
                mkdirat(&parent, name, Mode::from_raw_mode(0o755))?;
                let (uid, gid) = (Uid::from_raw(about.st_uid), Gid::from_raw(about.st_gid));
                let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
                chownat(&parent, name, Some(uid), Some(gid), flags)?;
                directory(root, &here)?
            }
            found => found?,
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
    fn directories_are_made_within_the_root_only() {
        let dir = tempfile::tempdir().expect("directory");
        let root = dir.path().join("root");
        fs::create_dir(&root).expect("directory");
        symlink("/", root.join("up")).expect("symlink");
        symlink("../../../elsewhere", root.join("out")).expect("symlink");
        fs::write(root.join("file"), "").expect("file");
        let opened = rustix::fs::open(&root, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).expect("open");
        make(opened.as_fd(), "/a/b/c").expect("made");
        make(opened.as_fd(), "/up/d").expect("made");
        assert!(root.join("a/b/c").is_dir() && root.join("d").is_dir());
        assert_eq!(make(opened.as_fd(), "/out/x"), Err(Errno::EXIST), "a symlink that leads nowhere stays so");
        assert_eq!(make(opened.as_fd(), "/file/x"), Err(Errno::NOTDIR));
        assert!(!dir.path().join("elsewhere").exists());
    }
}
