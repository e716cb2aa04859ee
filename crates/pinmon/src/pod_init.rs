//! Program and root file system of a pod's init (`podinit/init.rs`): a read-only file system with this single file.

use std::io;

use monitor_api::UserMappings;
use rustix::{
    fd::OwnedFd,
    fs::{Mode, OFlags, openat},
    mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_string, fsmount, fsopen},
};

/// Path in that root file system. Its file name is what `ps` shows.
pub(crate) const PATH: &str = "/pod-init";

/// The program, static and without a C library.
const PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/pod-init"));

/// Creates a detached mount for one pod, owned by root of its user namespace. Nothing of the host is reachable through
/// `/proc/1/root`.
pub(crate) fn root(user: Option<&UserMappings>) -> io::Result<OwnedFd> {
    let context = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(&context, "source", "pod-init")?;
    fsconfig_set_string(&context, "mode", "0555")?;
    fsconfig_set_string(&context, "size", "64k")?;
    if let Some(user) = user {
        // Root of the pod creates mount points in it.
        for (option, map) in [("uid", &user.uids), ("gid", &user.gids)] {
            let root = map.iter().find(|line| line.container_id == 0).map_or(0, |line| line.host_id);
            fsconfig_set_string(&context, option, root.to_string())?;
        }
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
