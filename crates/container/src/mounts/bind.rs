//! Bind mounts: a clone of a mount tree of the host, or a mount given by the caller.

use std::{
    ffi::{CStr, CString},
    io,
};

use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{CWD, FileType, StatVfsMountFlags, fstat, fstatvfs},
    mount::{MountAttrFlags, MountPropagationFlags, OpenTreeFlags, open_tree},
};
use syscall::{error_text::error_text, mount_attributes::MountAttributes};

use crate::{
    Error,
    destination::Shape,
    error::During,
    mounts::{
        MountFd,
        idmap::{IdMap, Maps},
        option::Options,
    },
};

/// The source of a bind mount.
#[derive(Debug)]
pub(crate) struct Source {
    pub(super) tree: Tree,
    /// Whether the container has another user namespace than the caller, whose root may not clear mount flags set by
    /// the host.
    pub(super) locked: bool,
}

/// The mount tree of a source.
#[derive(Debug)]
pub(crate) enum Tree {
    /// A detached mount given by the caller or opened in it.
    Given(OwnedFd),
    /// A path as the caller sees it.
    Path {
        path: CString,
        /// Whether mounts below are cloned too.
        recursive: bool,
    },
}

/// Flags of the source that a bind mount does not inherit if its options set any flag.
const NOT_INHERITED: MountAttrFlags = MountAttrFlags::MOUNT_ATTR_NOSUID
    .union(MountAttrFlags::MOUNT_ATTR_NODEV)
    .union(MountAttrFlags::MOUNT_ATTR_NOEXEC)
    .union(MountAttrFlags::MOUNT_ATTR_NOSYMFOLLOW);

impl Source {
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match &self.tree {
            Tree::Given(fd) => Some(fd.as_fd()),
            Tree::Path { .. } => None,
        }
    }

    /// Applies an id map; the source must be opened.
    pub(crate) fn map_ids(&self, map: &IdMap, maps: &mut Maps<'_>) -> Result<(), Error> {
        match &self.tree {
            Tree::Given(tree) => maps.apply(map, tree.as_fd()),
            Tree::Path { .. } => Err(Error::system("map ids of a mount: it is not opened", rustix::io::Errno::BADF)),
        }
    }

    /// Replaces a path by a detached clone, which can be attached in any mount namespace. Runs in the caller, which
    /// sees the host's paths. As a slave it still receives mounts that the host makes below it later.
    pub(crate) fn open(&mut self, slave: bool) -> Result<(), Error> {
        let Tree::Path { path, recursive } = &self.tree else { return Ok(()) };
        let tree = clone(path, *recursive)?;
        if slave {
            let slave = MountAttributes { propagation: Some(MountPropagationFlags::DOWNSTREAM), ..Default::default() };
            slave.apply(&tree, *recursive).during(|| format!("make the clone of {path:?} a slave"))?;
        }
        self.tree = Tree::Given(tree);
        Ok(())
    }

    /// Returns the detached mount with its attributes, and whether it is a directory.
    pub(crate) fn make(&self, options: &Options) -> Result<(MountFd<'_>, Shape), Error> {
        let tree = match &self.tree {
            Tree::Given(fd) => MountFd::Borrowed(fd.as_fd()),
            Tree::Path { path, recursive } => MountFd::Owned(clone(path, *recursive)?),
        };
        if !options.attributes.is_empty() {
            self.set_attributes(options.attributes, tree.as_fd())?;
        }
        if !options.recursive_attributes.is_empty() {
            self.set(options.recursive_attributes, tree.as_fd(), true)?;
        }
        let kind = FileType::from_raw_mode(fstat(&tree).during(|| "stat the bind source")?.st_mode);
        Ok((tree, if kind == FileType::Directory { Shape::Directory } else { Shape::File }))
    }

    /// Sets the attributes of the mount itself. Like runc and crun, once the options set any flag, `nosuid`, `nodev`,
    /// `noexec` and `nosymfollow` are taken from the options and not from the host's mount, so that volumes behave the
    /// same on hosts whose file systems have these flags. `ro` is cleared only by `rw`; a locked flag is never cleared.
    fn set_attributes(&self, requested: MountAttributes, tree: BorrowedFd<'_>) -> Result<(), Error> {
        let all = MountAttributes { clear: requested.clear | (NOT_INHERITED - requested.set), ..requested };
        if !self.locked && all.clear != requested.clear {
            match all.apply(tree, false) {
                // The caller is in a user namespace, and flags set from another one are locked.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
                result => return result.during(|| format!("set {all:?} of the bind mount")),
            }
        }
        self.set(requested, tree, false)
    }

    /// Sets the requested attributes, or fails: a container must not run with other flags than its spec requires.
    fn set(&self, requested: MountAttributes, tree: BorrowedFd<'_>, recursive: bool) -> Result<(), Error> {
        let clears = LockedFlags::of(requested.clear);
        // The kernel locks no flags of a detached clone made on the host, so locked flags are checked here.
        let checked = self.locked && !clears.0.is_empty() && matches!(self.tree, Tree::Given(_));
        if checked && recursive {
            return Err(clears.error("the mounts below the source may have the flag"));
        }
        let before = if checked { clears.on(tree)? } else { LockedFlags::NONE };
        match requested.apply(tree, recursive) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                let present = clears.on(tree)?;
                let locked = if present.0.is_empty() { clears } else { present };
                let reason = format!("flags of the source are locked: {}", error_text(&error));
                return Err(if locked.0.is_empty() {
                    Error::system(format!("set {requested:?} of the bind mount (access times may be locked)"), error)
                } else {
                    locked.error(&reason)
                });
            }
            result => result.during(|| format!("set {requested:?} of the bind mount"))?,
        }
        // A file system that is read-only itself still shows the flag afterwards; that is not a flag of the mount.
        let cleared = if before.0.is_empty() { before } else { LockedFlags(before.0 - before.on(tree)?.0) };
        if cleared.0.is_empty() { Ok(()) } else { Err(cleared.error("the source has the flag")) }
    }
}

/// Flags that the kernel locks when a mount is copied into a user namespace with fewer privileges (`MNT_LOCK_*`).
#[derive(Clone, Copy)]
struct LockedFlags(StatVfsMountFlags);

impl LockedFlags {
    const NONE: Self = Self(StatVfsMountFlags::empty());

    /// Each flag as shown by statfs(2), as cleared by mount_setattr(2), and the option that clears it.
    const ALL: [(StatVfsMountFlags, MountAttrFlags, &str); 4] = [
        (StatVfsMountFlags::RDONLY, MountAttrFlags::MOUNT_ATTR_RDONLY, "rw"),
        (StatVfsMountFlags::NOSUID, MountAttrFlags::MOUNT_ATTR_NOSUID, "suid"),
        (StatVfsMountFlags::NODEV, MountAttrFlags::MOUNT_ATTR_NODEV, "dev"),
        (StatVfsMountFlags::NOEXEC, MountAttrFlags::MOUNT_ATTR_NOEXEC, "exec"),
    ];

    fn of(attributes: MountAttrFlags) -> Self {
        let flags = Self::ALL.iter().filter(|(_, attribute, _)| attributes.contains(*attribute));
        Self(flags.fold(StatVfsMountFlags::empty(), |all, (flag, ..)| all | *flag))
    }

    /// Returns those of the flags that a mount has.
    fn on(self, tree: BorrowedFd<'_>) -> Result<Self, Error> {
        Ok(Self(self.0 & fstatvfs(tree).during(|| "read the flags of the bind source")?.f_flag))
    }

    fn error(self, reason: &str) -> Error {
        let options = Self::ALL.iter().filter(|(flag, ..)| self.0.contains(*flag)).map(|(.., option)| *option);
        let options = options.collect::<Vec<_>>().join(",");
        Error::invalid(format!(
            "option {options:?} is not permitted in a user namespace: {reason}; remove the option, or change the source"
        ))
    }
}

fn clone(path: &CStr, recursive: bool) -> Result<OwnedFd, Error> {
    let mut flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    if recursive {
        flags |= OpenTreeFlags::AT_RECURSIVE;
    }
    open_tree(CWD, path, flags).during(|| format!("bind source {path:?}"))
}
