//! Detached mounts that wait to be attached at their destinations in the container's root.

use std::ffi::CStr;

use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, chmodat, fstat, mkdirat, openat2},
    io::Errno,
    mount::MountAttrFlags,
};
use syscall::mount_attributes::MountAttributes;

use super::{Kind, Mount, cgroup::V1Mount, copy_up};
use crate::{
    Error, descriptors,
    destination::{self, Shape},
    error::During,
    mount_tree::attach,
};

/// The descriptor of a detached mount.
pub(crate) enum MountFd<'a> {
    /// It was opened in the caller, or given by it.
    Borrowed(BorrowedFd<'a>),
    /// It was made here.
    Owned(OwnedFd),
}

impl AsFd for MountFd<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Borrowed(fd) => *fd,
            Self::Owned(fd) => fd.as_fd(),
        }
    }
}

/// A mount that is made but not attached yet.
pub(crate) struct PendingMount<'a> {
    pub(super) mount: &'a Mount,
    /// `None`: an existing mount is remounted.
    pub(super) tree: Option<MountFd<'a>>,
    pub(super) shape: Shape,
    pub(super) v1: Option<V1Mount>,
}

/// Number of destinations that stay open until the child closes all descriptors at once. Further ones are closed
/// immediately, so that the limit of open files restricts only the number of mounts.
const DESTINATIONS_LEFT_OPEN: usize = 64;

/// Attaches each mount at its destination inside `root`.
pub(crate) fn attach_all(mounts: &[PendingMount<'_>], root: BorrowedFd<'_>) -> Result<(), Error> {
    for (number, mount) in mounts.iter().enumerate() {
        let destination =
            mount.try_attach(root).map_err(|error| error.within(format!("mount on {:?}", mount.mount.destination)))?;
        if number < DESTINATIONS_LEFT_OPEN {
            descriptors::leave(destination);
        }
    }
    Ok(())
}

impl PendingMount<'_> {
    /// Attaches the mount and returns the descriptor of the destination, which it covers.
    fn try_attach(&self, root: BorrowedFd<'_>) -> Result<OwnedFd, Error> {
        let Some(tree) = self.tree.as_ref().map(AsFd::as_fd) else { return self.remount(root) };
        let destination = self.destination(root, tree)?;
        if self.mount.options.copy_up {
            copy_up::copy_tree(destination.as_fd(), tree).during(|| "copy the image's files there (tmpcopyup)")?;
        }
        attach(tree, destination.as_fd()).during(|| self.mismatch(destination.as_fd()))?;
        if let Some(v1) = &self.v1 {
            v1.attach(tree)?;
        }
        // Only now: mounts attached on a shared mount would propagate to its peers.
        let propagated = self.mount.options.propagation.map_or(Ok(()), |propagation| propagation.apply(tree));
        propagated.during(|| "set the propagation")?;
        Ok(destination)
    }

    fn destination(&self, root: BorrowedFd<'_>, tree: BorrowedFd<'_>) -> Result<OwnedFd, Error> {
        let path = self.mount.destination.as_c_str();
        match &self.mount.kind {
            Kind::New(fs) if [c"proc", c"sysfs"].contains(&fs.kind.as_c_str()) => plain_directory(root, path),
            Kind::New(fs) if fs.kind.as_c_str() == c"tmpfs" && !self.mount.options.has_data("mode") => {
                match destination::find(root, path) {
                    Ok(covered) => copy_mode(tree, covered.as_fd()).map(|()| covered),
                    Err(_) => destination::find_or_make(root, path, self.shape),
                }
            }
            _ => destination::find_or_make(root, path, self.shape),
        }
    }

    /// Makes the mount read-only if its options require it, once its contents are created.
    pub(crate) fn finish(&self) -> Result<(), Error> {
        let Some(tree) = self.tree.as_ref().filter(|_| self.mount.read_only_late) else { return Ok(()) };
        let attributes = MountAttributes { set: MountAttrFlags::MOUNT_ATTR_RDONLY, ..Default::default() };
        attributes.apply(tree, false).during(|| format!("make the mount on {:?} read-only", self.mount.destination))
    }

    /// Changes the attributes of a mount of an earlier entry or of the root.
    fn remount(&self, root: BorrowedFd<'_>) -> Result<OwnedFd, Error> {
        let options = &self.mount.options;
        let target = destination::find(root, &self.mount.destination).during(|| "open the mount to remount")?;
        for (attributes, recursive) in [(options.attributes, false), (options.recursive_attributes, true)] {
            if !attributes.is_empty() {
                attributes.apply(&target, recursive).during(|| "remount (is something mounted there?)")?;
            }
        }
        let propagated = options.propagation.map_or(Ok(()), |propagation| propagation.apply(&target));
        propagated.during(|| "set the propagation")?;
        Ok(target)
    }

    fn mismatch(&self, destination: BorrowedFd<'_>) -> String {
        let is_directory =
            fstat(destination).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory);
        match (self.shape, is_directory) {
            (Shape::Directory, false) => "attach a directory where the container has a file".to_owned(),
            (Shape::File, true) => "attach a file where the container has a directory".to_owned(),
            _ => "attach".to_owned(),
        }
    }
}

/// Opens or creates the destination of proc and sysfs, which must be a directory reached without symlinks. Otherwise an
/// image could redirect the mount and present its own files as procfs (CVE-2019-19921).
fn plain_directory(root: BorrowedFd<'_>, path: &CStr) -> Result<OwnedFd, Error> {
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match openat2(root, path, flags, Mode::empty(), resolve) {
        Err(Errno::NOENT) => {
            let relative = &path.to_bytes_with_nul()[1..];
            if let Ok(name) = CStr::from_bytes_with_nul(relative)
                && !name.to_bytes().contains(&b'/')
            {
                let created = mkdirat(root, name, Mode::from_raw_mode(0o755));
                created.during(|| format!("create {path:?} in the container"))?;
            } else {
                destination::find_or_make(root, path, Shape::Directory)?;
            }
            openat2(root, path, flags, Mode::empty(), resolve)
        }
        result => result,
    }
    .during(|| format!("open {path:?} in the container, which must be a directory and not a symlink"))
}

/// Sets the mode of a tmpfs without `mode=` to that of the directory that it covers, like runc and crun. Without a
/// directory the kernel's default (1777) stays.
fn copy_mode(tree: BorrowedFd<'_>, covered: BorrowedFd<'_>) -> Result<(), Error> {
    let mode = fstat(covered).during(|| "read the mode of the directory that the tmpfs covers")?.st_mode;
    chmodat(tree, c".", Mode::from_raw_mode(mode & 0o7777), AtFlags::empty())
        .during(|| "set the mode of the tmpfs to that of the directory that it covers")
}
