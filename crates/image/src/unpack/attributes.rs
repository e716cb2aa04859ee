//! Owner, mode, extended attributes and time of unpacked files.
//!
//! They are set in this order, because chown clears setuid bits and file capabilities, and every later change except
//! that of the time changes only the ctime.

use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{AtFlags, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags},
    io::Errno,
};

use super::{
    tar_entry::{Kind, Meta},
    tree::path_error,
};
use crate::Error;

/// Whether an archive may set this extended attribute. Others would affect this host's kernel: `trusted.overlay.*`
/// overlayfs, `security.selinux` and `security.ima` its security modules.
pub(super) fn may_be_set(name: &[u8]) -> bool {
    name == b"security.capability"
        || (name.starts_with(b"user.") && !name.starts_with(b"user.overlay."))
        || name.starts_with(b"system.posix_acl_")
}

/// Whether an attribute that can't be stored is an error: a lost capability changes what a program may do.
fn must_be_set(name: &[u8]) -> bool {
    name == b"security.capability"
}

fn times(meta: &Meta) -> Timestamps {
    let time = Timespec { tv_sec: meta.mtime.0, tv_nsec: meta.mtime.1.into() };
    Timestamps { last_access: time, last_modification: time }
}

/// Sets all attributes of an open file or directory. `created` is the mode with which it was created, after the umask;
/// its owner is 0:0.
pub(crate) fn set(fd: BorrowedFd<'_>, path: &[u8], meta: &Meta, created: u32) -> Result<(), Error> {
    let owned = meta.uid != 0 || meta.gid != 0;
    if owned {
        let (uid, gid) = (Uid::from_raw(meta.uid), Gid::from_raw(meta.gid));
        rustix::fs::fchown(fd, Some(uid), Some(gid)).map_err(|cause| path_error(path, "set its owner", cause))?;
    }
    if meta.mode != created || (owned && meta.mode & 0o6000 != 0) {
        let mode = Mode::from_raw_mode(meta.mode);
        rustix::fs::fchmod(fd, mode).map_err(|cause| path_error(path, "set its mode", cause))?;
    }
    for (name, value) in &meta.xattrs {
        xattr_result(path, name, rustix::fs::fsetxattr(fd, name.as_slice(), value, XattrFlags::empty()))?;
    }
    rustix::fs::futimens(fd, &times(meta)).map_err(|cause| path_error(path, "set its time", cause))
}

/// Sets all attributes of a link, device or FIFO, which cannot be opened.
pub(crate) fn set_at(parent: &OwnedFd, name: &[u8], path: &[u8], kind: Kind, meta: &Meta) -> Result<(), Error> {
    if meta.uid != 0 || meta.gid != 0 {
        let (uid, gid) = (Uid::from_raw(meta.uid), Gid::from_raw(meta.gid));
        rustix::fs::chownat(parent, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|cause| path_error(path, "set its owner", cause))?;
    }
    if kind != Kind::Symlink {
        // No other process writes here, and the name is not a symlink: it was just created as something else.
        rustix::fs::chmodat(parent, name, Mode::from_raw_mode(meta.mode), AtFlags::empty())
            .map_err(|cause| path_error(path, "set its mode", cause))?;
    }
    for (xattr, value) in &meta.xattrs {
        use std::os::fd::AsRawFd;
        let mut link = format!("/proc/thread-self/fd/{}/", parent.as_fd().as_raw_fd()).into_bytes();
        link.extend_from_slice(name);
        let result = rustix::fs::lsetxattr(link.as_slice(), xattr.as_slice(), value, XattrFlags::empty());
        xattr_result(path, xattr, result)?;
    }
    rustix::fs::utimensat(parent, name, &times(meta), AtFlags::SYMLINK_NOFOLLOW)
        .map_err(|cause| path_error(path, "set its time", cause))
}

fn xattr_result(path: &[u8], name: &[u8], result: rustix::io::Result<()>) -> Result<(), Error> {
    match result {
        Ok(()) => Ok(()),
        // The file system has no such attributes, or this kind of file can't have them.
        Err(Errno::OPNOTSUPP | Errno::PERM) if !must_be_set(name) => Ok(()),
        Err(cause) => Err(path_error(path, &format!("set attribute {}", String::from_utf8_lossy(name)), cause)),
    }
}
