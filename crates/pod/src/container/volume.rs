//! Files and directories of the node as detached mounts: cloned here, where the node's mounts are, attached in the
//! container.

use std::path::Path;

use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::CWD,
    io::Errno,
    mount::{
        MountAttrFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, move_mount, open_tree,
        unmount,
    },
};
use syscall::mount_attributes::MountAttributes;

use super::{Propagation, Volume, host_directory};
use crate::{Error, error::failed, mount_source::MountTable};

/// A volume, with what is mounted below it, its propagation and its attributes set. A directory that is not there is
/// made.
pub(crate) fn open(volume: &Volume) -> Result<OwnedFd, Error> {
    let message =
        |e: &dyn std::fmt::Display| format!("volume {}: {}: {e}", volume.container_path, volume.host_path.display());
    if !volume.host_path.is_absolute() {
        return Err(Error::invalid(message(&"the path on the node is not absolute")));
    }
    let tree = match clone(&volume.host_path, Depth::All) {
        Err(Errno::NOENT) => clone_new(&volume.host_path).map_err(|why| Error::invalid(message(&why)))?,
        Err(Errno::NOTDIR) => return Err(Error::invalid(message(&NOT_A_DIRECTORY))),
        tree => tree.map_err(|errno| Error::internal(message(&errno)))?,
    };
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
        return Err(Error::invalid(message(&why)));
    }
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
        propagation.apply(&tree, true).map_err(|e| Error::internal(message(&e)))?;
    }
    if volume.readonly {
        let readonly = MountAttributes { set: MountAttrFlags::MOUNT_ATTR_RDONLY, ..MountAttributes::default() };
        readonly.apply(&tree, volume.recursive_readonly).map_err(|e| Error::internal(message(&e)))?;
    }
    Ok(tree)
}

const NOT_A_DIRECTORY: &str = "a part of the path is not a directory; rename or remove it";

/// A directory that is not there, made and cloned: what was made, whatever is at its path by then.
fn clone_new(path: &Path) -> Result<OwnedFd, String> {
    let wrong = |errno| match errno {
        Errno::NOTDIR => NOT_A_DIRECTORY.to_owned(),
        Errno::LOOP => "it is, or is below, a symbolic link to nothing; create what the link leads to".to_owned(),
        errno => format!("it does not exist on the node and cannot be created: {errno}; create it first"),
    };
    let directory = host_directory::create(path).map_err(wrong)?;
    tracing::info!(path = %path.display(), "created the directory of a volume, which did not exist");
    clone_of(directory.as_fd(), "", Depth::All).map_err(|errno| format!("clone the directory made for it: {errno}"))
}

/// A file or directory of the node's own, private.
pub(crate) fn open_file(path: &Path) -> Result<OwnedFd, Error> {
    let message = format!("clone {}", path.display());
    let tree = clone(path, Depth::All).map_err(failed(&message))?;
    private(&tree, false).map_err(failed(message))?;
    Ok(tree)
}

/// One file of a detached mount as a mount of its own, private. `point` as for [`clone_detached`].
pub(crate) fn clone_file(mount: BorrowedFd<'_>, name: &str, point: &Path, readonly: bool) -> Result<OwnedFd, Error> {
    let message = format!("clone the pod's {name}");
    let tree = clone_or_attach(mount, name, point).map_err(|e| e.during(&message))?;
    private(&tree, readonly).map_err(failed(message))?;
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

/// Another mount of what a detached mount shows. Before Linux 6.15 only what is attached can be cloned: then it is
/// attached at `point`, which is made, for as long as the pod lives.
pub(crate) fn clone_detached(mount: BorrowedFd<'_>, point: &Path) -> Result<OwnedFd, Error> {
    clone_or_attach(mount, "", point).map_err(|e| e.during("clone the pod's /dev/shm"))
}

fn clone_or_attach(mount: BorrowedFd<'_>, name: &str, point: &Path) -> Result<OwnedFd, Error> {
    match clone_of(mount, name, Depth::Top) {
        Err(Errno::INVAL) => {
            // Another container of the pod may attach it at the same time: then it can be cloned all the same.
            let attached = attach(mount, point);
            clone_of(mount, name, Depth::Top).or_else(|errno| attached.and(Err(failed("open_tree")(errno))))
        }
        cloned => cloned.map_err(failed("open_tree")),
    }
}

/// With an empty name what the descriptor shows itself.
fn clone_of(directory: BorrowedFd<'_>, name: &str, depth: Depth) -> Result<OwnedFd, Errno> {
    open_tree(directory, name, clone_flags(depth) | OpenTreeFlags::AT_EMPTY_PATH | OpenTreeFlags::AT_SYMLINK_NOFOLLOW)
}

fn attach(mount: BorrowedFd<'_>, point: &Path) -> Result<(), Error> {
    let message = format!("attach a tmpfs of the pod at {}", point.display());
    match std::fs::create_dir(point) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(failed(message)(error)),
        _ => {}
    }
    move_mount(mount, "", CWD, point, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH).map_err(failed(message))
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
    open_tree(CWD, path, clone_flags(depth))
}

fn clone_flags(depth: Depth) -> OpenTreeFlags {
    let flags = OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::OPEN_TREE_CLONE;
    if depth == Depth::All { flags | OpenTreeFlags::AT_RECURSIVE } else { flags }
}

/// Whether the mount that a path is on has one of these tags (proc_pid_mountinfo(5)).
fn propagates(path: &Path, tags: &[&str]) -> bool {
    let Ok(path) = path.canonicalize() else { return true };
    MountTable::read().has_tag(&path, tags)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_kernel_clones_what_is_attached() {
        // A thread of its own: its mount namespace goes with it.
        let outcome = std::thread::spawn(|| {
            syscall::mount_namespace::unshare_mounts().expect("unshare");
            rustix::mount::mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
                .expect("private");
            let directory = tempfile::tempdir().expect("directory");
            let point = directory.path().join("shm");
            let shm = crate::sandbox::make_shm((0, 0)).expect("tmpfs");
            attach(shm.as_fd(), &point).expect("attach");
            std::fs::write(point.join("x"), "shared").expect("write");
            let clone = clone_of(shm.as_fd(), "", Depth::Top).expect("clone");
            let path = format!("/proc/thread-self/fd/{}/x", std::os::fd::AsRawFd::as_raw_fd(&clone));
            assert_eq!(std::fs::read_to_string(path).expect("read"), "shared");
            let file = clone_of(shm.as_fd(), "x", Depth::Top).expect("clone");
            let path = format!("/proc/thread-self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
            assert_eq!(std::fs::read_to_string(path).expect("read"), "shared");
            detach(&point).expect("detach");
            detach(&point).expect("detach twice");
            assert!(!point.join("x").exists());
        });
        outcome.join().expect("the thread's assertions hold");
    }
}
