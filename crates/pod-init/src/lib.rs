//! A program that waits for SIGTERM and reaps orphans (`init.rs`), and a root file system with only that program: the
//! init process of a pod with a shared PID namespace, and the sandbox container of shims that need one.

#![forbid(unsafe_code)]

use std::io;

use rustix::{
    fd::OwnedFd,
    fs::{Mode, OFlags, openat},
    mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_string, fsmount, fsopen},
};

/// Path in that root file system. Its file name is what `ps` shows.
pub const PATH: &str = "/pod-init";

/// The program, static and without a C library.
const PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/pod-init"));

/// Creates the root file system as a detached mount (a tmpfs), which `owner` owns: user and group id on the node. Nothing
/// of the node is reachable through it.
///
/// # Errors
/// Those of fsopen(2), fsmount(2) and open(2); Linux 5.2.
pub fn root(owner: Option<(u32, u32)>) -> io::Result<OwnedFd> {
    let context = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(&context, "source", "pod-init")?;
    fsconfig_set_string(&context, "mode", "0555")?;
    fsconfig_set_string(&context, "size", "64k")?;
    if let Some((user, group)) = owner {
        // Root of the pod creates mount points in it.
        fsconfig_set_string(&context, "uid", user.to_string())?;
        fsconfig_set_string(&context, "gid", group.to_string())?;
    }
    fsconfig_create(&context)?;
    // Not nodev, because /dev/null is created in it.
    let mount = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::MOUNT_ATTR_NOSUID)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = openat(&mount, &PATH[1..], flags, Mode::RWXU.intersection(Mode::RUSR | Mode::XUSR))?;
    rustix::fs::fchmod(&file, Mode::RUSR | Mode::XUSR | Mode::RGRP | Mode::XGRP | Mode::ROTH | Mode::XOTH)?;
    let mut rest = PROGRAM;
    while !rest.is_empty() {
        rest = &rest[rustix::io::write(&file, rest)?..];
    }
    Ok(mount)
}
