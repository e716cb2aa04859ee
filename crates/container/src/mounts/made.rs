//! Mounts that are made and detached, on their way to their destinations in the container's root.

use std::ffi::CStr;

use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, chmodat, fstat, mkdirat, openat2},
    io::Errno,
    mount::MountAttrFlags,
};
use syscall::mount_attributes::MountAttributes;

use super::{Kind, Mount, attach, cgroup::V1Mount, copy_up};
use crate::{
    Error, descriptors,
    destination::{self, Shape},
    error::During,
};

/// A detached mount.
pub(crate) enum Detached<'a> {
    /// In the caller, or by the one who gave it.
    Opened(BorrowedFd<'a>),
    /// Here.
    Made(OwnedFd),
}

impl AsFd for Detached<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Opened(fd) => *fd,
            Self::Made(fd) => fd.as_fd(),
        }
    }
}

/// A mount that is not attached yet.
pub(crate) struct Made<'a> {
    pub(super) mount: &'a Mount,
    /// None: what is there is only changed.
    pub(super) tree: Option<Detached<'a>>,
    pub(super) shape: Shape,
    pub(super) v1: Option<V1Mount>,
}

/// As many places of mounts stay open until the child closes everything at once; each further one is closed, so that
/// the limit of open files bounds the mounts only and not their places.
const PLACES_LEFT_OPEN: usize = 64;

/// Attaches each at its destination inside `root`.
pub(crate) fn attach_all(made: &[Made<'_>], root: BorrowedFd<'_>) -> Result<(), Error> {
    for (number, mount) in made.iter().enumerate() {
        let place =
            mount.try_attach(root).map_err(|error| error.within(format!("mount on {:?}", mount.mount.destination)))?;
        if number < PLACES_LEFT_OPEN {
            descriptors::leave(place);
        }
    }
    Ok(())
}

impl Made<'_> {
    /// Returns its place, which it covers.
    fn try_attach(&self, root: BorrowedFd<'_>) -> Result<OwnedFd, Error> {
        let Some(tree) = self.tree.as_ref().map(AsFd::as_fd) else { return self.remount(root) };
        let destination = self.destination(root, tree)?;
        if self.mount.options.copy_up {
            copy_up::copy_tree(destination.as_fd(), tree).during(|| "copy what the image has there (tmpcopyup)")?;
        }
        attach(tree, destination.as_fd()).during(|| self.mismatch(destination.as_fd()))?;
        if let Some(v1) = &self.v1 {
            v1.attach(tree)?;
        }
        // Not before: a shared tree would carry the attaching to its peers.
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
                    Ok(covered) => take_mode(tree, covered.as_fd()).map(|()| covered),
                    Err(_) => destination::find_or_make(root, path, self.shape),
                }
            }
            _ => destination::find_or_make(root, path, self.shape),
        }
    }

    /// Last, when nothing more is made in it: what is to be read-only becomes so.
    pub(crate) fn finish(&self) -> Result<(), Error> {
        let Some(tree) = self.tree.as_ref().filter(|_| self.mount.read_only_late) else { return Ok(()) };
        let attributes = MountAttributes { set: MountAttrFlags::MOUNT_ATTR_RDONLY, ..Default::default() };
        attributes.apply(tree, false).during(|| format!("make the mount on {:?} read-only", self.mount.destination))
    }

    /// New attributes for what an earlier entry, or the root, has there.
    fn remount(&self, root: BorrowedFd<'_>) -> Result<OwnedFd, Error> {
        let options = &self.mount.options;
        let found = destination::find(root, &self.mount.destination).during(|| "open what is to be remounted")?;
        for (attributes, recursive) in [(options.own, false), (options.recursive, true)] {
            if !attributes.is_empty() {
                attributes.apply(&found, recursive).during(|| "remount (is something mounted there?)")?;
            }
        }
        let propagated = options.propagation.map_or(Ok(()), |propagation| propagation.apply(&found));
        propagated.during(|| "set the propagation")?;
        Ok(found)
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

/// The place of proc and sysfs: a directory reached without any symlink, or an image could move them away and show its
/// own files in their place, for others to trust (CVE-2019-19921).
fn plain_directory(root: BorrowedFd<'_>, path: &CStr) -> Result<OwnedFd, Error> {
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match openat2(root, path, flags, Mode::empty(), resolve) {
        Err(Errno::NOENT) => {
            let relative = &path.to_bytes_with_nul()[1..];
            if let Ok(name) = CStr::from_bytes_with_nul(relative)
                && !name.to_bytes().contains(&b'/')
            {
                let made = mkdirat(root, name, Mode::from_raw_mode(0o755));
                made.during(|| format!("create {path:?} in the container"))?;
            } else {
                destination::find_or_make(root, path, Shape::Directory)?;
            }
            openat2(root, path, flags, Mode::empty(), resolve)
        }
        result => result,
    }
    .during(|| format!("open {path:?} in the container, which must be a directory and not a symlink"))
}

/// A tmpfs without `mode=` has the mode of the directory that it covers, as with runc and crun; the kernel's 1777 where
/// none is.
fn take_mode(tree: BorrowedFd<'_>, covered: BorrowedFd<'_>) -> Result<(), Error> {
    let mode = fstat(covered).during(|| "read the mode of the directory that the tmpfs covers")?.st_mode;
    chmodat(tree, c".", Mode::from_raw_mode(mode & 0o7777), AtFlags::empty())
        .during(|| "give the tmpfs the mode of the directory that it covers")
}
