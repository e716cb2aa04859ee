//! Files and folders of the node as detached mounts: cloned here, where the node's mounts are, attached in the container.

use std::path::Path;

use rustix::{
    fd::{BorrowedFd, OwnedFd},
    fs::CWD,
    io::Errno,
    mount::{
        MountAttrFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, move_mount, open_tree,
        unmount,
    },
};
use syscall::mount_attributes::MountAttributes;

use super::{Propagation, Volume};
use crate::{Error, error::failed, mount_source::MountTable};

/// A volume, with what is mounted below it, its propagation and its attributes set.
pub(crate) fn open(volume: &Volume) -> Result<OwnedFd, Error> {
    let told =
        |e: &dyn std::fmt::Display| format!("volume {}: {}: {e}", volume.container_path, volume.host_path.display());
    if !volume.host_path.is_absolute() {
        return Err(Error::invalid(told(&"the path on the node is not absolute")));
    }
    let needs = match volume.propagation {
        Propagation::Private => None,
        Propagation::HostToContainer => {
            Some(("host-to-container", ["shared:", "master:"].as_slice(), "shared or slave"))
        }
        Propagation::Bidirectional => Some(("bidirectional", ["shared:"].as_slice(), "shared")),
    };
    if let Some((asked, _, kind)) = needs.filter(|(_, tags, _)| !propagates(&volume.host_path, tags)) {
        let why =
            format!("{asked} propagation, but it is not on a {kind} mount; run `mount --make-shared` on that mount");
        return Err(Error::invalid(told(&why)));
    }
    let tree = clone(&volume.host_path, Depth::All).map_err(|errno| match errno {
        Errno::NOENT | Errno::NOTDIR => Error::invalid(told(&"it does not exist on the node; create it first")),
        errno => Error::internal(told(&errno)),
    })?;
    let propagation = MountAttributes {
        propagation: match volume.propagation {
            Propagation::Private => Some(MountPropagationFlags::PRIVATE),
            Propagation::HostToContainer => Some(MountPropagationFlags::DOWNSTREAM),
            // The clone is in the peer group of what it was cloned from.
            Propagation::Bidirectional => None,
        },
        ..MountAttributes::default()
    };
    if !propagation.is_empty() {
        propagation.apply(&tree, true).map_err(|e| Error::internal(told(&e)))?;
    }
    if volume.readonly {
        let readonly = MountAttributes { set: MountAttrFlags::MOUNT_ATTR_RDONLY, ..MountAttributes::default() };
        readonly.apply(&tree, volume.recursive_readonly).map_err(|e| Error::internal(told(&e)))?;
    }
    Ok(tree)
}

/// A file or directory of the node's own, private.
pub(crate) fn open_file(path: &Path) -> Result<OwnedFd, Error> {
    let told = format!("clone {}", path.display());
    let tree = clone(path, Depth::All).map_err(failed(&told))?;
    private(&tree, false).map_err(failed(told))?;
    Ok(tree)
}

/// One file of a detached mount as a mount of its own, private. `point` as for [`clone_detached`].
pub(crate) fn clone_file(mount: BorrowedFd<'_>, name: &str, point: &Path, readonly: bool) -> Result<OwnedFd, Error> {
    let told = format!("clone the pod's {name}");
    let tree = clone_or_attach(mount, name, point).map_err(|e| e.during(&told))?;
    private(&tree, readonly).map_err(failed(told))?;
    Ok(tree)
}

fn private(tree: &OwnedFd, readonly: bool) -> std::io::Result<()> {
    let mut attributes =
        MountAttributes { propagation: Some(MountPropagationFlags::PRIVATE), ..MountAttributes::default() };
    if readonly {
        attributes.set = MountAttrFlags::MOUNT_ATTR_RDONLY;
    }
    attributes.apply(tree, true)
}

/// Another mount of what a detached mount shows. Before Linux 6.15 only what is attached can be cloned: then it is attached
/// at `point`, which is made, for as long as the pod lives.
pub(crate) fn clone_detached(mount: BorrowedFd<'_>, point: &Path) -> Result<OwnedFd, Error> {
    clone_or_attach(mount, "", point).map_err(|e| e.during("clone the pod's /dev/shm"))
}

fn clone_or_attach(mount: BorrowedFd<'_>, name: &str, point: &Path) -> Result<OwnedFd, Error> {
    match clone_of(mount, name) {
        Err(Errno::INVAL) => {
            // Another container of the pod may attach it at the same time: then it can be cloned all the same.
            let attached = attach(mount, point);
            clone_of(mount, name).or_else(|errno| attached.and(Err(failed("open_tree")(errno))))
        }
        cloned => cloned.map_err(failed("open_tree")),
    }
}

/// With an empty name the mount's root.
fn clone_of(mount: BorrowedFd<'_>, name: &str) -> Result<OwnedFd, Errno> {
    let flags = OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::AT_EMPTY_PATH
        | OpenTreeFlags::AT_SYMLINK_NOFOLLOW;
    open_tree(mount, name, flags)
}

fn attach(mount: BorrowedFd<'_>, point: &Path) -> Result<(), Error> {
    let told = format!("attach a tmpfs of the pod at {}", point.display());
    match std::fs::create_dir(point) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(failed(told)(error)),
        _ => {}
    }
    move_mount(mount, "", CWD, point, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH).map_err(failed(told))
}

/// Takes away what [`clone_detached`] attached, if it did.
pub(crate) fn detach(point: &Path) -> Result<(), Error> {
    match unmount(point, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
        Ok(()) | Err(Errno::INVAL | Errno::NOENT) => Ok(()),
        Err(errno) => Err(failed(format_args!("unmount {}", point.display()))(errno)),
    }
}

/// How much is cloned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Depth {
    /// What is mounted there.
    Top,
    /// And all that is mounted below.
    All,
}

/// A path of the node as a detached mount.
pub(crate) fn clone(path: &Path, depth: Depth) -> Result<OwnedFd, Errno> {
    let mut flags = OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::OPEN_TREE_CLONE;
    if depth == Depth::All {
        flags |= OpenTreeFlags::AT_RECURSIVE;
    }
    open_tree(CWD, path, flags)
}

/// Whether the mount that a path is on has one of these tags (proc_pid_mountinfo(5)). A path that is not there says so when
/// it is cloned.
fn propagates(path: &Path, tags: &[&str]) -> bool {
    let Ok(path) = path.canonicalize() else { return true };
    MountTable::read().has_tag(&path, tags)
}

#[cfg(test)]
mod tests {
    use rustix::fd::AsFd;

    use super::*;

    #[test]
    fn an_older_kernel_clones_what_is_attached() {
        // A thread of its own: its mount namespace goes with it.
        let outcome = std::thread::spawn(|| {
            syscall::mount_namespace::unshare_mounts().expect("unshare");
            rustix::mount::mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
                .expect("private");
            let folder = tempfile::tempdir().expect("folder");
            let point = folder.path().join("shm");
            let shm = crate::sandbox::make_shm((0, 0)).expect("tmpfs");
            attach(shm.as_fd(), &point).expect("attach");
            std::fs::write(point.join("x"), "shared").expect("write");
            let clone = clone_of(shm.as_fd(), "").expect("clone");
            let path = format!("/proc/thread-self/fd/{}/x", std::os::fd::AsRawFd::as_raw_fd(&clone));
            assert_eq!(std::fs::read_to_string(path).expect("read"), "shared");
            let file = clone_of(shm.as_fd(), "x").expect("clone");
            let path = format!("/proc/thread-self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
            assert_eq!(std::fs::read_to_string(path).expect("read"), "shared");
            detach(&point).expect("detach");
            detach(&point).expect("detach twice");
            assert!(!point.join("x").exists());
        });
        outcome.join().expect("the thread's assertions hold");
    }
}
