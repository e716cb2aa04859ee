//! The staging mount namespace, pinned once per boot at `/run/pinrun/staging`, so that a container's mount namespace is
//! a copy of three mounts and not of the host's.

use std::os::fd::AsRawFd;

use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{CWD, FlockOperation, Mode, OFlags, flock, openat},
    io::Errno,
    mount::mount_bind,
};

const DIRECTORY: &str = "/run/pinrun";
const PIN: &str = "/run/pinrun/staging";
/// `CLONE_NEWNS`, as nsfs names the kind.
const MOUNT_NAMESPACE: u32 = 0x0002_0000;

/// The pinned namespace, made where there is none yet. `None`: it cannot be had (no privileges, no such directory); the
/// caller's own namespace serves, too.
pub(crate) fn open() -> Option<OwnedFd> {
    // Only root can read the pin, or make one.
    pinned().or_else(|| if rustix::process::geteuid().is_root() { make().ok() } else { None })
}

fn pinned() -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = openat(CWD, PIN, flags, Mode::empty()).ok()?;
    // An ordinary file is what is left where the pin was.
    (syscall::namespace::namespace_kind(&file).ok() == Some(MOUNT_NAMESPACE)).then_some(file)
}

fn make() -> std::io::Result<OwnedFd> {
    let mut directory = std::fs::DirBuilder::new();
    std::os::unix::fs::DirBuilderExt::mode(&mut directory, 0o700);
    directory.recursive(true).create(DIRECTORY)?;
    let flags = OFlags::RDONLY | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let place = openat(CWD, PIN, flags, Mode::from_raw_mode(0o400))?;
    // One pin, however many calls find none.
    flock(&place, FlockOperation::LockExclusive)?;
    if let Some(made) = pinned() {
        return Ok(made);
    }
    let namespace = container::staging::make()?;
    match mount_bind(format!("/proc/self/fd/{}", namespace.as_fd().as_raw_fd()), PIN) {
        // Without the pin the next call makes another.
        Ok(()) | Err(Errno::PERM | Errno::INVAL) => Ok(namespace),
        Err(errno) => Err(errno.into()),
    }
}
