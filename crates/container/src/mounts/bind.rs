//! Bind mounts: a clone of a tree of the host, or one that the caller gave.

use std::{
    ffi::{CStr, CString},
    io,
};

use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{CWD, FileType, StatVfsMountFlags, fstat, fstatvfs},
    mount::{MountAttrFlags, MountPropagationFlags, OpenTreeFlags, open_tree},
};
use syscall::mount_attributes::MountAttributes;

use crate::{
    Error,
    destination::Shape,
    error::During,
    mounts::{
        idmap::{IdMap, Maps},
        option::Options,
    },
};

/// What is bound.
#[derive(Debug)]
pub(crate) enum Source {
    /// A detached mount.
    Given(OwnedFd),
    /// A path, as the caller sees it.
    Path {
        path: CString,
        /// With what is mounted below.
        recursive: bool,
    },
}

impl Source {
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Given(fd) => Some(fd.as_fd()),
            Self::Path { .. } => None,
        }
    }

    /// Once opened.
    pub(crate) fn map_ids(&self, map: &IdMap, maps: &mut Maps<'_>) -> Result<(), Error> {
        match self {
            Self::Given(tree) => maps.apply(map, tree.as_fd()),
            Self::Path { .. } => Err(Error::system("map ids of a mount: it is not opened", rustix::io::Errno::BADF)),
        }
    }

    /// In the caller, where the host's paths are: a path becomes a detached clone, which may then be attached in any
    /// namespace. As a slave it still receives what the host mounts below later.
    pub(crate) fn open(&mut self, slave: bool) -> Result<(), Error> {
        let Self::Path { path, recursive } = self else { return Ok(()) };
        let tree = clone(path, *recursive)?;
        if slave {
            let slave = MountAttributes { propagation: Some(MountPropagationFlags::DOWNSTREAM), ..Default::default() };
            slave.apply(&tree, *recursive).during(|| format!("make the clone of {path:?} a slave"))?;
        }
        *self = Self::Given(tree);
        Ok(())
    }

    /// The detached mount with its attributes, and whether it is a folder.
    pub(crate) fn make(&self, options: &Options) -> Result<(OwnedFd, Shape), Error> {
        let tree = match self {
            Self::Given(fd) => rustix::io::fcntl_dupfd_cloexec(fd, 3).during(|| "duplicate the given mount")?,
            Self::Path { path, recursive } => clone(path, *recursive)?,
        };
        for (attributes, recursive) in [(options.own, false), (options.recursive, true)] {
            if !attributes.is_empty() {
                apply(attributes, &tree, recursive).during(|| format!("set {attributes:?} of the bind mount"))?;
            }
        }
        let kind = FileType::from_raw_mode(fstat(&tree).during(|| "ask what the bind source is")?.st_mode);
        Ok((tree, if kind == FileType::Directory { Shape::Folder } else { Shape::File }))
    }
}

/// Whoever is in a user namespace may not take away what another one put on a mount (`MNT_LOCK_*`): such a flag stays, as with
/// every runtime, for engines say `rw` of whatever they bind.
pub(crate) fn apply(attributes: MountAttributes, tree: &OwnedFd, recursive: bool) -> io::Result<()> {
    let refused = match attributes.apply(tree, recursive) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => error,
        result => return result,
    };
    let now = fstatvfs(tree)?.f_flag;
    let mut less = attributes;
    for (flag, attribute) in [
        (StatVfsMountFlags::RDONLY, MountAttrFlags::MOUNT_ATTR_RDONLY),
        (StatVfsMountFlags::NOSUID, MountAttrFlags::MOUNT_ATTR_NOSUID),
        (StatVfsMountFlags::NODEV, MountAttrFlags::MOUNT_ATTR_NODEV),
        (StatVfsMountFlags::NOEXEC, MountAttrFlags::MOUNT_ATTR_NOEXEC),
    ] {
        if now.contains(flag) {
            less.clear -= attribute;
        }
    }
    // How times of access are kept is locked as a whole.
    less.clear -= MountAttrFlags::MOUNT_ATTR__ATIME;
    less.set -= MountAttrFlags::MOUNT_ATTR__ATIME;
    if less.clear == attributes.clear {
        return Err(refused);
    }
    if less.is_empty() { Ok(()) } else { less.apply(tree, recursive) }
}

fn clone(path: &CStr, recursive: bool) -> Result<OwnedFd, Error> {
    let mut flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    if recursive {
        flags |= OpenTreeFlags::AT_RECURSIVE;
    }
    open_tree(CWD, path, flags).during(|| format!("bind source {path:?}"))
}
