//! The container's root: a detached mount or a directory, entered by pivot_root.
//!
//! The root is entered *before* the other mounts are attached. By then they are all made detached ([`crate::mounts`]),
//! so nothing outside the root is needed any longer, and no path of an image can be resolved outside of it.

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

use crate::{Error, Rootfs, error::During, mounts::option, namespaces::MountNamespace, spec_string::c_string};

/// `root` and `linux.rootfsPropagation`.
#[derive(Debug)]
pub(crate) struct Root {
    source: Source,
    /// Its path on the host, if it is given as a path.
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
                    return Err(Error::invalid(format!("root.path: {path:?} is not a directory")));
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
                    "linux.rootfsPropagation: {word:?} is not one of [r]shared, [r]slave, [r]private, [r]unbindable"
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

    /// Opens a root that is given as a path. Runs in the caller, if the child will not see its paths.
    pub(crate) fn open(&mut self) -> Result<(), Error> {
        if let Source::Path(path) = &self.source {
            self.source = Source::Mount(clone(path)?);
        }
        Ok(())
    }

    /// Makes all mounts slaves of the host's, so that mounts made here do not propagate to the caller's namespace. Runs
    /// in the child's new mount namespace, before mounts are made. Slave and not private, so that later mounts of the
    /// host still propagate to volumes that request it. If the root is to be shared, clones of the host's mounts must
    /// first be made as peers: then [`Root::stop_late_propagation`] does it.
    pub(crate) fn stop_propagation(&self) -> Result<(), Error> {
        if self.is_shared() { Ok(()) } else { slave_all() }
    }

    /// Makes all mounts slaves if the root is to be shared: after mounts are made, before any is attached or unmounted.
    pub(crate) fn stop_late_propagation(&self) -> Result<(), Error> {
        if self.is_shared() { slave_all() } else { Ok(()) }
    }

    /// Whether `linux.rootfsPropagation` is `shared` or `rshared`.
    pub(crate) fn is_shared(&self) -> bool {
        self.propagation.is_some_and(|propagation| propagation.flags == MountPropagationFlags::SHARED)
    }

    /// Returns the root as a detached mount for pivot_root. Mounts of the host below it are slaves, never peers, so
    /// that mounts of the container do not propagate to the host. With `slave` the root itself is one too, so that
    /// later mounts of the host below the root's directory propagate to the container; otherwise it is private
    /// (config-linux.md, "Rootfs Mount Propagation": a shared root belongs to a new peer group).
    pub(crate) fn detached(&self) -> Result<OwnedFd, Error> {
        let tree = match &self.source {
            Source::Mount(fd) => rustix::io::fcntl_dupfd_cloexec(fd, 3).during(|| "duplicate the root's descriptor")?,
            Source::Path(path) => clone(path)?,
        };
        let slave = MountAttributes { propagation: Some(MountPropagationFlags::DOWNSTREAM), ..Default::default() };
        // A detached mount given by the caller is in no peer group.
        if self.path.is_some() {
            slave.apply(&tree, true).during(|| "make the mounts of the root slaves of the host's")?;
        }
        if !self.is_slave() {
            let private = MountAttributes { propagation: Some(MountPropagationFlags::PRIVATE), ..slave };
            private.apply(&tree, false).during(|| "make the root mount private")?;
        }
        Ok(tree)
    }

    /// Whether later mounts of the host below the root propagate to the container.
    fn is_slave(&self) -> bool {
        self.propagation.is_some_and(|propagation| propagation.flags == MountPropagationFlags::DOWNSTREAM)
    }

    /// Attaches the root where hooks expect it: at its path on the host, or at the bundle's `rootfs` if it has no path.
    pub(crate) fn attach_on_host(&self, root: BorrowedFd<'_>, bundle: &str) -> Result<(), Error> {
        let destination = match &self.path {
            Some(path) => path.clone(),
            None => c_string("bundle", &format!("{bundle}/rootfs"))?,
        };
        move_mount(root, c"", CWD, destination.as_c_str(), MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
            .during(|| format!("attach the root at {destination:?} for the hooks"))
    }

    /// Makes the root read-only and sets its propagation, last, because nothing can be created afterwards.
    pub(crate) fn seal(&self, root: BorrowedFd<'_>) -> Result<(), Error> {
        let mut attributes = MountAttributes::default();
        if self.readonly {
            attributes.set = MountAttrFlags::MOUNT_ATTR_RDONLY;
        }
        if !attributes.is_empty() {
            attributes.apply(root, false).during(|| "make the root read-only")?;
        }
        // A slave root was made a slave already; applying it again would change volumes that are to be shared.
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

/// Makes `root` the root of this mount namespace and unmounts the old one.
///
/// See pivot_root(2), "pivot_root(".", ".")": the old root is then stacked on the new one, and is unmounted from there.
pub(crate) fn enter(root: BorrowedFd<'_>, mount: MountNamespace) -> Result<(), Error> {
    if mount == MountNamespace::Joined {
        // pivot_root fails if the old root is shared. The propagation of mounts below it is not changed.
        mount_change(c"/", MountPropagationFlags::PRIVATE).during(|| "make the joined namespace's root private")?;
    }
    move_mount(root, c"", CWD, c"/", MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH).during(|| "attach the root")?;
    change(root, mount)
}

/// Changes to a root that is attached already: by pivot_root, or in the caller's own mount namespace by chroot, for
/// this process only.
pub(crate) fn change(root: BorrowedFd<'_>, mount: MountNamespace) -> Result<(), Error> {
    fchdir(root).during(|| "enter the root")?;
    if mount == MountNamespace::Same {
        chroot(c".").during(|| "chroot into the root")?;
        return chdir(c"/").during(|| "enter the new root");
    }
    pivot_root(c".", c".").during(|| "pivot_root into the root")?;
    unmount(c".", UnmountFlags::DETACH).during(|| "unmount the old root")?;
    chdir(c"/").during(|| "enter the new root")
}

/// Unmounts the root of a container without its own mount namespace, with all mounts below it, from its path in the
/// caller's. Succeeds if nothing is mounted there.
///
/// # Errors
/// Those of umount2(2).
pub fn detach_root(path: &Path) -> io::Result<()> {
    match unmount(path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
        // It is not a mount point, or does not exist.
        Ok(()) | Err(Errno::INVAL | Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}
