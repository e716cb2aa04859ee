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
    error::{During, cause_text},
    mounts::{
        Detached,
        idmap::{IdMap, Maps},
        option::Options,
    },
};

/// What is bound.
#[derive(Debug)]
pub(crate) struct Source {
    pub(super) tree: Tree,
    /// Whether the container has a user namespace of its own, whose root may take no flag off what the host shows it.
    pub(super) locked: bool,
}

/// Where it comes from.
#[derive(Debug)]
pub(crate) enum Tree {
    /// A detached mount.
    Given(OwnedFd),
    /// A path, as the caller sees it.
    Path {
        path: CString,
        /// With what is mounted below.
        recursive: bool,
    },
}

/// Flags that a bind mount loses where its options name any flag, and not these.
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

    /// Once opened.
    pub(crate) fn map_ids(&self, map: &IdMap, maps: &mut Maps<'_>) -> Result<(), Error> {
        match &self.tree {
            Tree::Given(tree) => maps.apply(map, tree.as_fd()),
            Tree::Path { .. } => Err(Error::system("map ids of a mount: it is not opened", rustix::io::Errno::BADF)),
        }
    }

    /// In the caller, where the host's paths are: a path becomes a detached clone, which may then be attached in any
    /// namespace. As a slave it still receives what the host mounts below later.
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

    /// The detached mount with its attributes, and whether it is a directory.
    pub(crate) fn make(&self, options: &Options) -> Result<(Detached<'_>, Shape), Error> {
        let tree = match &self.tree {
            Tree::Given(fd) => Detached::Opened(fd.as_fd()),
            Tree::Path { path, recursive } => Detached::Made(clone(path, *recursive)?),
        };
        if !options.own.is_empty() {
            self.set_own(options.own, tree.as_fd())?;
        }
        if !options.recursive.is_empty() {
            self.set(options.recursive, tree.as_fd(), true)?;
        }
        let kind = FileType::from_raw_mode(fstat(&tree).during(|| "ask what the bind source is")?.st_mode);
        Ok((tree, if kind == FileType::Directory { Shape::Directory } else { Shape::File }))
    }

    /// As runc and crun: where any flag is named, `nosuid`, `nodev`, `noexec` and `nosymfollow` are as named and not as
    /// on the host, so that a volume of a host whose file systems have them works as one of any other host. Not so
    /// `ro`, which only `rw` clears; a locked flag is never cleared.
    fn set_own(&self, named: MountAttributes, tree: BorrowedFd<'_>) -> Result<(), Error> {
        let all = MountAttributes { clear: named.clear | (NOT_INHERITED - named.set), ..named };
        if !self.locked && all.clear != named.clear {
            match all.apply(tree, false) {
                // The caller is in a user namespace, and what another one put on the mount stays.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
                result => return result.during(|| format!("set {all:?} of the bind mount")),
            }
        }
        self.set(named, tree, false)
    }

    /// Sets what is named, or refuses: a container that is not what its spec says would be worse than none.
    fn set(&self, named: MountAttributes, tree: BorrowedFd<'_>, recursive: bool) -> Result<(), Error> {
        let clears = Locked::of(named.clear);
        // The kernel has locked nothing of a detached clone that the host made.
        let checked = self.locked && !clears.0.is_empty() && matches!(self.tree, Tree::Given(_));
        if checked && recursive {
            return Err(clears.refused("the mounts below the source may have the flag"));
        }
        let before = if checked { clears.on(tree)? } else { Locked::NONE };
        match named.apply(tree, recursive) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                let held = clears.on(tree)?;
                let locked = if held.0.is_empty() { clears } else { held };
                let why = format!("flags of the source are locked: {}", cause_text(&error));
                return Err(if locked.0.is_empty() {
                    Error::system(format!("set {named:?} of the bind mount (access times may be locked)"), error)
                } else {
                    locked.refused(&why)
                });
            }
            result => result.during(|| format!("set {named:?} of the bind mount"))?,
        }
        // A file system that is read-only itself is still so: that was no flag of the mount.
        let cleared = if before.0.is_empty() { before } else { Locked(before.0 - before.on(tree)?.0) };
        if cleared.0.is_empty() { Ok(()) } else { Err(cleared.refused("the source has the flag")) }
    }
}

/// Flags that the kernel locks when a mount is copied into a user namespace with fewer rights (`MNT_LOCK_*`).
#[derive(Clone, Copy)]
struct Locked(StatVfsMountFlags);

impl Locked {
    const NONE: Self = Self(StatVfsMountFlags::empty());

    /// As statfs(2) shows them, as they are cleared, and the option that does it.
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

    /// Those of them that a mount has.
    fn on(self, tree: BorrowedFd<'_>) -> Result<Self, Error> {
        Ok(Self(self.0 & fstatvfs(tree).during(|| "read the flags of the bind source")?.f_flag))
    }

    fn refused(self, why: &str) -> Error {
        let options = Self::ALL.iter().filter(|(flag, ..)| self.0.contains(*flag)).map(|(.., option)| *option);
        let options = options.collect::<Vec<_>>().join(",");
        Error::invalid(format!(
            "option {options:?} cannot be had in a user namespace: {why}; leave the option out, or change the source"
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
