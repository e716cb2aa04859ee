//! A mount namespace with an empty root, proc and sysfs, and nothing else: what a container's namespace is best copied
//! from.
//!
//! A new mount namespace is a copy of the one it is made in. From a host's thousand mounts that takes milliseconds,
//! from these three microseconds. proc and sysfs must be fully visible in it, or a container in a user namespace could
//! not mount its own.

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

/// Moves the calling process, which must have one thread, into a new one. Descriptors opened before keep working; paths
/// of the host do not. Needs `CAP_SYS_ADMIN` and Linux 5.2.
///
/// # Errors
/// What the kernel says of the mount or the namespace.
pub fn enter_new() -> io::Result<()> {
    let root = file_system("tmpfs", &[("mode", "0555"), ("size", "64k")], MountAttrFlags::empty())?;
    syscall::mount_namespace::unshare_mounts()?;
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    // Onto the host's root directory in this namespace. What comes below goes there only now: a mount that is attached
    // to nothing takes no others before Linux 6.15.
    move_mount(&root, c"", CWD, "/", MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
    for (kind, name) in [("proc", "proc"), ("sysfs", "sys")] {
        mkdirat(&root, name, Mode::from_raw_mode(0o555))?;
        let mount = file_system(kind, &[], MountAttrFlags::MOUNT_ATTR_NODEV)?;
        attach(&root, &mount, name)?;
    }
    // The host's root goes.
    rustix::process::fchdir(&root)?;
    rustix::process::pivot_root(c".", c".")?;
    unmount(c".", UnmountFlags::DETACH)?;
    rustix::process::chdir(c"/")?;
    Ok(())
}

/// Makes one without moving into it: a descriptor keeps it, and a bind mount of that descriptor pins it. The caller
/// must have one thread.
///
/// # Errors
/// As [`enter_new`].
pub fn make() -> io::Result<OwnedFd> {
    let (ours, childs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    let child = Clone3::default().fork(|| {
        let made = enter_new();
        let word = made.map_or_else(|error| error.raw_os_error().unwrap_or(libc::EIO), |()| 0).to_ne_bytes();
        let told = rustix::net::send(&childs, &word, SendFlags::NOSIGNAL);
        // The namespace lives as long as this process, until the caller has it open.
        let _ = told.and_then(|_| recv(&childs, &mut [0u8; 1], RecvFlags::empty()));
        0
    })?;
    let mut word = [0u8; 4];
    let namespace = match recv(&ours, &mut word, RecvFlags::empty()) {
        Ok((4, _)) if i32::from_ne_bytes(word) == 0 => {
            let path = format!("/proc/{}/ns/mnt", child.pid);
            Ok(openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
        }
        Ok((4, _)) => Err(io::Error::from_raw_os_error(i32::from_ne_bytes(word))),
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

fn file_system(kind: &str, options: &[(&str, &str)], more: MountAttrFlags) -> io::Result<OwnedFd> {
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in options {
        fsconfig_set_string(&context, *key, *value)?;
    }
    fsconfig_create(&context)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC | more;
    Ok(fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}
