//! File systems of pods that are not mounted anywhere.

use rustix::{
    fd::OwnedFd,
    mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_string, fsmount, fsopen},
};

use crate::{Error, error::failed};

/// Size of `/dev/shm`, as in other engines.
const SHM_SIZE: &str = "64m";

/// Creates the pod's `/dev/shm`, owned by this user and group.
pub(crate) fn make_shm((uid, gid): (u32, u32)) -> Result<OwnedFd, Error> {
    let (uid, gid) = (uid.to_string(), gid.to_string());
    make_tmpfs(&[("source", "shm"), ("size", SHM_SIZE), ("mode", "1777"), ("uid", &uid), ("gid", &gid)])
        .map_err(failed("create a tmpfs for /dev/shm"))
}

/// Creates a tmpfs with these options that is not mounted anywhere.
pub(super) fn make_tmpfs(options: &[(&str, &str)]) -> rustix::io::Result<OwnedFd> {
    let context = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in options {
        fsconfig_set_string(&context, *key, *value)?;
    }
    fsconfig_create(&context)?;
    let attributes =
        MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}
