//! `linux.maskedPaths` and `linux.readonlyPaths`.
//!
//! Masked directories are covered by one read-only, empty tmpfs that they share, masked files by a device that is
//! checked to be `/dev/null` (CVE-2025-31133: the container's own `/dev/null` may be a symlink that another container
//! replaces).

use std::ffi::CString;

use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{FileType, fstat},
    io::Errno,
    mount::{MountAttrFlags, OpenTreeFlags, open_tree},
};
use syscall::mount_attributes::MountAttributes;

use crate::{
    Error, descriptors, destination,
    devices::open_null,
    error::During,
    mount_tree::attach,
    mounts::{filesystem::FileSystem, option::Options},
    spec_string::container_path,
};

/// Masked and read-only paths.
#[derive(Debug, Default)]
pub(crate) struct Masks {
    masked: Vec<CString>,
    readonly: Vec<CString>,
}

impl Masks {
    pub(crate) fn parse(linux: &oci::Linux) -> Result<Self, Error> {
        let parse = |field: &str, paths: &[String]| -> Result<Vec<CString>, Error> {
            let mut parsed = Vec::with_capacity(paths.len());
            for path in paths {
                let path = container_path(field, path)?;
                // A path that is listed twice is covered once.
                if !parsed.contains(&path) {
                    parsed.push(path);
                }
            }
            Ok(parsed)
        };
        Ok(Self {
            masked: parse("linux.maskedPaths", &linux.masked_paths)?,
            readonly: parse("linux.readonlyPaths", &linux.readonly_paths)?,
        })
    }

    /// Masks the paths. Runs in the child, inside the root. Paths that do not exist are skipped.
    pub(crate) fn apply(&self, root: BorrowedFd<'_>) -> Result<(), Error> {
        for path in &self.readonly {
            if let Some(target) = find(root, path)? {
                make_read_only(&target).during(|| format!("make {path:?} read-only"))?;
                descriptors::leave(target);
            }
        }
        let mut covers = Covers { root, directory: None, file: None };
        for path in &self.masked {
            if let Some(target) = find(root, path)? {
                covers.cover(&target).map_err(|error| error.within(format!("mask {path:?}")))?;
                descriptors::leave(target);
            }
        }
        descriptors::leave(covers);
        Ok(())
    }
}

fn find(root: BorrowedFd<'_>, path: &CString) -> Result<Option<OwnedFd>, Error> {
    match destination::find(root, path) {
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        result => result.map(Some).during(|| format!("open {path:?} in the container")),
    }
}

/// Bind mounts a path over itself, recursively and read-only.
fn make_read_only(target: &OwnedFd) -> std::io::Result<()> {
    let tree = clone_tree(target.as_fd(), true)?;
    let attributes = MountAttributes { set: MountAttrFlags::MOUNT_ATTR_RDONLY, ..Default::default() };
    attributes.apply(&tree, true)?;
    attach(tree.as_fd(), target.as_fd())?;
    descriptors::leave(tree);
    Ok(())
}

fn clone_tree(mount: BorrowedFd<'_>, recursive: bool) -> Result<OwnedFd, Errno> {
    let mut flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    if recursive {
        flags |= OpenTreeFlags::AT_RECURSIVE;
    }
    open_tree(mount, c"", flags)
}

/// Mounts that cover masked paths; each is made when it is first needed.
struct Covers<'a> {
    root: BorrowedFd<'a>,
    /// The tmpfs, attached on the first masked directory.
    directory: Option<OwnedFd>,
    /// `/dev/null`, for masked files.
    file: Option<OwnedFd>,
}

impl Covers<'_> {
    fn cover(&mut self, target: &OwnedFd) -> Result<(), Error> {
        let kind = FileType::from_raw_mode(fstat(target).during(|| "stat it")?.st_mode);
        if kind == FileType::Directory { self.cover_directory(target) } else { self.cover_file(target) }
    }

    fn cover_directory(&mut self, target: &OwnedFd) -> Result<(), Error> {
        if let Some(first) = &self.directory {
            let tree = clone_tree(first.as_fd(), false).during(|| "clone the empty tmpfs")?;
            attach(tree.as_fd(), target.as_fd()).during(|| "attach the empty tmpfs")?;
            descriptors::leave(tree);
            return Ok(());
        }
        let mut options = Options::default();
        options.attributes.set = MountAttrFlags::MOUNT_ATTR_RDONLY
            | MountAttrFlags::MOUNT_ATTR_NOSUID
            | MountAttrFlags::MOUNT_ATTR_NODEV
            | MountAttrFlags::MOUNT_ATTR_NOEXEC;
        options.data.push(("nr_inodes".to_owned(), Some("1".to_owned())));
        let tree = FileSystem { kind: c"tmpfs".into(), source: Some(c"tmpfs".into()) }.make(&options)?;
        attach(tree.as_fd(), target.as_fd()).during(|| "attach the empty tmpfs")?;
        self.directory = Some(tree);
        Ok(())
    }

    fn cover_file(&mut self, target: &OwnedFd) -> Result<(), Error> {
        if self.file.is_none() {
            self.file = Some(open_null(self.root, rustix::fs::OFlags::PATH)?);
        }
        let null = self.file.as_ref().map(AsFd::as_fd).unwrap_or(self.root);
        let tree = clone_tree(null, false).during(|| "clone /dev/null")?;
        attach(tree.as_fd(), target.as_fd()).during(|| "attach /dev/null")?;
        descriptors::leave(tree);
        Ok(())
    }
}
