//! The staging mount namespace, pinned once per boot at `/run/pinrun/staging`, so that a container's mount namespace is
//! a copy of three mounts and not of all mounts of the host.

use std::os::fd::AsRawFd;

use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{CWD, FlockOperation, Mode, OFlags, flock, openat},
    io::Errno,
    mount::mount_bind,
};

const DIRECTORY: &str = "/run/pinrun";
const PIN: &str = "/run/pinrun/staging";
/// `CLONE_NEWNS`, which `NS_GET_NSTYPE` returns for a mount namespace (ioctl_nsfs(2)).
const MOUNT_NAMESPACE: u32 = 0x0002_0000;

/// Opens the pinned namespace, and creates it if it does not exist. Returns `None` if that is not possible (no
/// privileges, no such directory): the caller's mount namespace can be used instead.
pub(crate) fn open() -> Option<OwnedFd> {
    // Only root can read or create the pin.
    open_pin().or_else(|| if rustix::process::geteuid().is_root() { create().ok() } else { None })
}

fn open_pin() -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = openat(CWD, PIN, flags, Mode::empty()).ok()?;
    // A regular file is the mountpoint of a pin that was unmounted.
    (syscall::namespace::namespace_kind(&file).ok() == Some(MOUNT_NAMESPACE)).then_some(file)
}

fn create() -> std::io::Result<OwnedFd> {
    let mut directory = std::fs::DirBuilder::new();
    std::os::unix::fs::DirBuilderExt::mode(&mut directory, 0o700);
    directory.recursive(true).create(DIRECTORY)?;
    let flags = OFlags::RDONLY | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let mountpoint = openat(CWD, PIN, flags, Mode::from_raw_mode(0o400))?;
    // Concurrent calls must not mount several pins on top of one another.
    flock(&mountpoint, FlockOperation::LockExclusive)?;
    if let Some(pinned) = open_pin() {
        return Ok(pinned);
    }
    let namespace = container::staging::make()?;
    match mount_bind(format!("/proc/self/fd/{}", namespace.as_fd().as_raw_fd()), PIN) {
        // Without a pin the next call creates another namespace.
        Ok(()) | Err(Errno::PERM | Errno::INVAL) => Ok(namespace),
        Err(errno) => Err(errno.into()),
    }
}
