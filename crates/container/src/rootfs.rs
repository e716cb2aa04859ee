//! The container's root: from a detached mount or a directory, entered by pivot_root.
//!
//! The root is entered *before* the other mounts are attached: by then they are all made, detached
//! ([`crate::mounts`]), so nothing outside is needed any more, and no path of an image can lead anywhere but into the
//! container.

use std::{
    ffi::{CStr, CString},
    io,
    os::unix::ffi::OsStrExt,
    path::Path,
};

use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::CWD,
    io::Errno,
    mount::{
        MountAttrFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, mount_change, move_mount,
        open_tree, unmount,
    },
    process::{chdir, chroot, fchdir, pivot_root},
};
use syscall::mount_attributes::MountAttributes;

use crate::{Error, Rootfs, error::During, mounts::option, namespaces::MountNamespace, text::c_string};

/// `root` and `linux.rootfsPropagation`.
#[derive(Debug)]
pub(crate) struct Root {
    source: Source,
    /// Where the host has it.
    path: Option<CString>,
    readonly: bool,
    propagation: Option<option::Propagation>,
}

#[derive(Debug)]
enum Source {
    Mount(OwnedFd),
    Path(CString),
}

impl Root {
    pub(crate) fn parse(spec: &oci::Spec, rootfs: Rootfs) -> Result<Self, Error> {
        let source = match rootfs {
            Rootfs::Mount(fd) => Source::Mount(fd),
            Rootfs::Path(path) => {
                if !path.is_absolute() {
                    return Err(Error::invalid(format!("root.path: {path:?} is not absolute")));
                }
                if !path.is_dir() {
                    return Err(Error::invalid(format!("root.path: {path:?} is no directory")));
                }
                let bytes = path.as_os_str().as_bytes();
                Source::Path(
                    CString::new(bytes).map_err(|_| Error::invalid(format!("root.path: {path:?} has a NUL byte")))?,
                )
            }
        };
        let propagation = match spec.linux.as_ref().and_then(|linux| linux.rootfs_propagation.as_deref()) {
            None | Some("") => None,
            Some(word) => Some(option::propagation(word).ok_or_else(|| {
                Error::invalid(format!(
                    "linux.rootfsPropagation: {word:?} is none of [r]shared, slave, private, unbindable"
                ))
            })?),
        };
        let path = match &source {
            Source::Path(path) => Some(path.clone()),
            Source::Mount(_) => None,
        };
        Ok(Self { source, path, readonly: spec.root.as_ref().is_some_and(|root| root.readonly), propagation })
    }

    pub(crate) fn descriptors(&self) -> Option<BorrowedFd<'_>> {
        match &self.source {
            Source::Mount(fd) => Some(fd.as_fd()),
            Source::Path(_) => None,
        }
    }

    /// In the caller, when the child will not see its paths.
    pub(crate) fn open(&mut self) -> Result<(), Error> {
        if let Source::Path(path) = &self.source {
            self.source = Source::Mount(clone(path)?);
        }
        Ok(())
    }

    /// In the child's new mount namespace, before mounts are made: nothing that is mounted here reaches the caller's.
    /// With slave, and not private, what the host mounts later still reaches volumes that ask for it. Where the spec
    /// wants shared, clones of the host's mounts must be made as peers first.
    pub(crate) fn part_from_host(&self) -> Result<(), Error> {
        if self.wants_shared() { Ok(()) } else { slave_all() }
    }

    /// After mounts were made, before any is attached or taken off.
    pub(crate) fn part_from_host_at_last(&self) -> Result<(), Error> {
        if self.wants_shared() { slave_all() } else { Ok(()) }
    }

    pub(crate) fn wants_shared(&self) -> bool {
        self.propagation.is_some_and(|propagation| propagation.flags == MountPropagationFlags::SHARED)
    }

    /// The root as a detached mount that can be pivoted into. What the host has mounted below it are slaves, never
    /// peers: what the container mounts there is its own. The root itself is one where the spec says `slave`: the
    /// host's later mounts below the root's directory then arrive in the container. Otherwise it is private
    /// (config-linux.md, "Rootfs Mount Propagation": a shared root belongs to a new peer group).
    pub(crate) fn take(&self) -> Result<OwnedFd, Error> {
        let tree = match &self.source {
            Source::Mount(fd) => rustix::io::fcntl_dupfd_cloexec(fd, 3).during(|| "duplicate the root's descriptor")?,
            Source::Path(path) => clone(path)?,
        };
        let slave = MountAttributes { propagation: Some(MountPropagationFlags::DOWNSTREAM), ..Default::default() };
        // A mount that the caller made and gave is of no peer group.
        if self.path.is_some() {
            slave.apply(&tree, true).during(|| "make the mounts of the root slaves of the host's")?;
        }
        if !self.is_slave() {
            let private = MountAttributes { propagation: Some(MountPropagationFlags::PRIVATE), ..slave };
            private.apply(&tree, false).during(|| "make the root mount private")?;
        }
        Ok(tree)
    }

    /// Whether the host's later mounts below the root are to arrive in the container.
    fn is_slave(&self) -> bool {
        self.propagation.is_some_and(|propagation| propagation.flags == MountPropagationFlags::DOWNSTREAM)
    }

    /// Attaches the root where the host has it, for hooks that look for it there: at its own path, or, of a root
    /// without one, at the bundle's `rootfs`.
    pub(crate) fn show(&self, root: BorrowedFd<'_>, bundle: &str) -> Result<(), Error> {
        let place = match &self.path {
            Some(path) => path.clone(),
            None => c_string("bundle", &format!("{bundle}/rootfs"))?,
        };
        move_mount(root, c"", CWD, place.as_c_str(), MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
            .during(|| format!("attach the root at {place:?} for the hooks"))
    }

    /// Read-only and propagation, last: nothing is created after it.
    pub(crate) fn seal(&self, root: BorrowedFd<'_>) -> Result<(), Error> {
        let mut attributes = MountAttributes::default();
        if self.readonly {
            attributes.set = MountAttrFlags::MOUNT_ATTR_RDONLY;
        }
        if !attributes.is_empty() {
            attributes.apply(root, false).during(|| "make the root read-only")?;
        }
        // A slave is one since it was made: volumes that are to be shared must stay so.
        if let Some(propagation) = self.propagation.filter(|_| !self.is_slave()) {
            propagation.apply(root).during(|| "set linux.rootfsPropagation")?;
        }
        Ok(())
    }
}

fn clone(path: &CStr) -> Result<OwnedFd, Error> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    open_tree(CWD, path, flags).during(|| format!("clone the mount of the root {path:?}"))
}

fn slave_all() -> Result<(), Error> {
    mount_change(c"/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)
        .during(|| "make the mounts of the new namespace slaves of the host's")
}

/// Makes `root` the root of this mount namespace and drops what was there.
///
/// pivot_root(2), "pivot_root(".", ".")": the old root ends stacked upon the new one and is taken off there.
pub(crate) fn enter(root: BorrowedFd<'_>, mount: MountNamespace) -> Result<(), Error> {
    if mount == MountNamespace::Joined {
        // The kernel pivots away from no shared mount; those below stay what they are.
        mount_change(c"/", MountPropagationFlags::PRIVATE).during(|| "make the joined namespace's root private")?;
    }
    move_mount(root, c"", CWD, c"/", MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH).during(|| "attach the root")?;
    change(root, mount)
}

/// The same for a root that is attached already. In the caller's own mount namespace the root can only be the
/// process's.
pub(crate) fn change(root: BorrowedFd<'_>, mount: MountNamespace) -> Result<(), Error> {
    fchdir(root).during(|| "enter the root")?;
    if mount == MountNamespace::Same {
        chroot(c".").during(|| "make the root the process's")?;
        return chdir(c"/").during(|| "enter the new root");
    }
    pivot_root(c".", c".").during(|| "pivot_root into the root")?;
    unmount(c".", UnmountFlags::DETACH).during(|| "leave the old root")?;
    chdir(c"/").during(|| "enter the new root")
}

/// Takes the mounts of a container away that had no mount namespace: they are below its root's path in the caller's.
/// One that has none is fine.
///
/// # Errors
/// What umount2(2) says.
pub fn detach_root(path: &Path) -> io::Result<()> {
    match unmount(path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
        // No mount, or gone.
        Ok(()) | Err(Errno::INVAL | Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}
