//! The staging namespace: a mount namespace with an empty root, proc and sysfs only, which containers' mount namespaces
//! are copied from.
//!
//! A new mount namespace is a copy of the one it is made in. Copying a host's thousand mounts takes milliseconds,
//! copying these three takes microseconds. proc and sysfs must be fully visible in it, or a container in a user
//! namespace could not mount its own.

use std::io;

use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{CWD, Mode, OFlags, mkdirat, openat},
    mount::{
        FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags, UnmountFlags,
        fsconfig_create, fsconfig_set_string, fsmount, fsopen, mount_change, move_mount, unmount,
    },
    net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, socketpair},
    process::{WaitId, WaitIdOptions, waitid},
};
use syscall::clone::Clone3;

/// Moves the calling process, which must be single-threaded, into a new staging namespace. Descriptors opened before
/// keep working; paths of the host do not. Needs `CAP_SYS_ADMIN` and Linux 5.2.
///
/// # Errors
/// Those of the mount API, unshare(2) and pivot_root(2).
pub fn enter_new() -> io::Result<()> {
    let root = file_system("tmpfs", &[("mode", "0555"), ("size", "64k")], MountAttrFlags::empty())?;
    syscall::mount_namespace::unshare_mounts()?;
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    // Attach the root over the host's before the mounts below it: before Linux 6.15, nothing can be mounted on a
    // detached mount.
    move_mount(&root, c"", CWD, "/", MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
    for (kind, name) in [("proc", "proc"), ("sysfs", "sys")] {
        mkdirat(&root, name, Mode::from_raw_mode(0o555))?;
        let mount = file_system(kind, &[], MountAttrFlags::MOUNT_ATTR_NODEV)?;
        attach(&root, &mount, name)?;
    }
    // Drop the host's root.
    rustix::process::fchdir(&root)?;
    rustix::process::pivot_root(c".", c".")?;
    unmount(c".", UnmountFlags::DETACH)?;
    rustix::process::chdir(c"/")?;
    Ok(())
}

/// Makes a staging namespace without moving into it. The returned descriptor keeps it alive, and a bind mount of the
/// descriptor pins it. The caller must be single-threaded.
///
/// # Errors
/// Those of [`enter_new`].
pub fn make() -> io::Result<OwnedFd> {
    let (ours, child_socket) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    let child = Clone3::default().fork(|| {
        let entered = enter_new();
        let errno = entered.map_or_else(|error| error.raw_os_error().unwrap_or(libc::EIO), |()| 0).to_ne_bytes();
        let sent = rustix::net::send(&child_socket, &errno, SendFlags::NOSIGNAL);
        // This process keeps the namespace alive until the caller has opened it.
        let _ = sent.and_then(|_| recv(&child_socket, &mut [0u8; 1], RecvFlags::empty()));
        0
    })?;
    let mut errno = [0u8; 4];
    let namespace = match recv(&ours, &mut errno, RecvFlags::empty()) {
        Ok((4, _)) if i32::from_ne_bytes(errno) == 0 => {
            let path = format!("/proc/{}/ns/mnt", child.pid);
            Ok(openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
        }
        Ok((4, _)) => Err(io::Error::from_raw_os_error(i32::from_ne_bytes(errno))),
        Ok(_) => Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
        Err(errno) => Err(errno.into()),
    };
    let _ = rustix::net::send(&ours, &[0], SendFlags::NOSIGNAL);
    waitid(WaitId::PidFd(child.pidfd.as_fd()), WaitIdOptions::EXITED)?;
    namespace
}

fn attach(root: &OwnedFd, mount: &OwnedFd, name: &str) -> io::Result<()> {
    Ok(move_mount(mount, c"", root.as_fd(), name, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?)
}

fn file_system(kind: &str, options: &[(&str, &str)], additional: MountAttrFlags) -> io::Result<OwnedFd> {
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in options {
        fsconfig_set_string(&context, *key, *value)?;
    }
    fsconfig_create(&context)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC | additional;
    Ok(fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}
