//! Files and directories of the node as detached mounts. They are cloned in this process, which sees the node's mounts,
//! and attached in the container.

use std::path::Path;

use monitor_api::MOUNTS_MAX;
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

use super::host_directory;
use crate::{ContainerConfig, Error, Propagation, Volume, error::failed, node::MountTable};

/// Opens a volume as a detached mount, together with the mounts below it, and sets its propagation and attributes. A
/// missing directory is created.
pub(crate) fn open(volume: &Volume) -> Result<OwnedFd, Error> {
    let message =
        |e: &dyn std::fmt::Display| format!("volume {}: {}: {e}", volume.container_path, volume.host_path.display());
    if !volume.host_path.is_absolute() {
        return Err(Error::invalid(message(&"the path on the node is not absolute")));
    }
    let tree = match clone(&volume.host_path, Depth::All) {
        Err(Errno::NOENT) => clone_new(&volume.host_path).map_err(|reason| Error::invalid(message(&reason)))?,
        Err(Errno::NOTDIR) => return Err(Error::invalid(message(&NOT_A_DIRECTORY))),
        tree => tree.map_err(|errno| Error::internal(message(&errno)))?,
    };
    let required = match volume.propagation {
        Propagation::Private => None,
        Propagation::HostToContainer => {
            Some(("host-to-container", ["shared:", "master:"].as_slice(), "shared or slave"))
        }
        Propagation::Bidirectional => Some(("bidirectional", ["shared:"].as_slice(), "shared")),
    };
    if let Some((mode, _, kind)) = required.filter(|(_, tags, _)| !propagates(&volume.host_path, tags)) {
        let reason =
            format!("{mode} propagation, but it is not on a {kind} mount; run `mount --make-shared` on that mount");
        return Err(Error::invalid(message(&reason)));
    }
    let propagation = MountAttributes {
        propagation: match volume.propagation {
            Propagation::Private => Some(MountPropagationFlags::PRIVATE),
            Propagation::HostToContainer => Some(MountPropagationFlags::DOWNSTREAM),
            // The clone is in the peer group of its source.
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

/// Creates a missing directory and clones it. The clone shows the directory that was created, even if its path leads
/// elsewhere by then.
fn clone_new(path: &Path) -> Result<OwnedFd, String> {
    let wrong = |errno| match errno {
        Errno::NOTDIR => NOT_A_DIRECTORY.to_owned(),
        Errno::LOOP => "it is, or is below, a dangling symbolic link; create the target of the link".to_owned(),
        errno => format!("it does not exist on the node and cannot be created: {errno}; create it first"),
    };
    let directory = host_directory::create(path).map_err(wrong)?;
    tracing::info!(path = %path.display(), "created the missing directory of a volume");
    clone_of(directory.as_fd(), "", Depth::All).map_err(|errno| format!("clone the created directory: {errno}"))
}

/// Clones a file or directory of the node as a private mount.
pub(crate) fn open_file(path: &Path) -> Result<OwnedFd, Error> {
    let message = format!("clone {}", path.display());
    let tree = clone(path, Depth::All).map_err(failed(&message))?;
    make_private(&tree, false).map_err(failed(message))?;
    Ok(tree)
}

/// Clones one file of a detached mount as a private mount. `mount_point` as for [`clone_detached`].
pub(crate) fn clone_file(
    mount: BorrowedFd<'_>,
    name: &str,
    mount_point: &Path,
    readonly: bool,
) -> Result<OwnedFd, Error> {
    let message = format!("clone the pod's {name}");
    let tree = clone_or_attach(mount, name, mount_point).map_err(|e| e.during(&message))?;
    make_private(&tree, readonly).map_err(failed(message))?;
    Ok(tree)
}

fn make_private(tree: &OwnedFd, readonly: bool) -> std::io::Result<()> {
    let mut attributes =
        MountAttributes { propagation: Some(MountPropagationFlags::PRIVATE), ..MountAttributes::default() };
    if readonly {
        attributes.set = MountAttrFlags::MOUNT_ATTR_RDONLY;
    }
    attributes.apply(tree, true)
}

/// Clones a detached mount. Before Linux 6.15 only attached mounts can be cloned: then it is attached to `mount_point`,
/// which is created, for as long as the pod exists.
pub(crate) fn clone_detached(mount: BorrowedFd<'_>, mount_point: &Path) -> Result<OwnedFd, Error> {
    clone_or_attach(mount, "", mount_point).map_err(|e| e.during("clone the pod's /dev/shm"))
}

fn clone_or_attach(mount: BorrowedFd<'_>, name: &str, mount_point: &Path) -> Result<OwnedFd, Error> {
    match clone_of(mount, name, Depth::Top) {
        Err(Errno::INVAL) => {
            // If another container of the pod attaches it at the same time, attaching fails, but cloning succeeds.
            let attached = attach(mount, mount_point);
            clone_of(mount, name, Depth::Top).or_else(|errno| attached.and(Err(failed("open_tree")(errno))))
        }
        cloned => cloned.map_err(failed("open_tree")),
    }
}

/// Clones a file of a directory; with an empty name the file that the descriptor refers to.
fn clone_of(directory: BorrowedFd<'_>, name: &str, depth: Depth) -> Result<OwnedFd, Errno> {
    open_tree(directory, name, clone_flags(depth) | OpenTreeFlags::AT_EMPTY_PATH | OpenTreeFlags::AT_SYMLINK_NOFOLLOW)
}

fn attach(mount: BorrowedFd<'_>, mount_point: &Path) -> Result<(), Error> {
    let message = format!("attach a tmpfs of the pod to {}", mount_point.display());
    match std::fs::create_dir(mount_point) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(failed(message)(error)),
        _ => {}
    }
    move_mount(mount, "", CWD, mount_point, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH).map_err(failed(message))
}

/// Unmounts what [`clone_detached`] attached, if anything.
pub(crate) fn detach(mount_point: &Path) -> Result<(), Error> {
    match unmount(mount_point, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
        Ok(()) | Err(Errno::INVAL | Errno::NOENT) => Ok(()),
        Err(errno) => Err(failed(format_args!("unmount {}", mount_point.display()))(errno)),
    }
}

/// Which mounts are cloned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Depth {
    /// The mount on the path itself.
    Top,
    /// The mount on the path and all mounts below it.
    All,
}

/// Clones a path of the node as a detached mount.
pub(crate) fn clone(path: &Path, depth: Depth) -> Result<OwnedFd, Errno> {
    open_tree(CWD, path, clone_flags(depth))
}

fn clone_flags(depth: Depth) -> OpenTreeFlags {
    let flags = OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::OPEN_TREE_CLONE;
    if depth == Depth::All { flags | OpenTreeFlags::AT_RECURSIVE } else { flags }
}

/// Whether the mount that a path is on has one of these tags (proc_pid_mountinfo(5)).
/// Reports whether the mount that a path is on has one of these tags of its propagation.
pub(crate) fn propagates(path: &Path, tags: &[&str]) -> bool {
    #[expect(clippy::disallowed_methods, reason = "a path of the host, which is compared with the mount table")]
    let Ok(path) = path.canonicalize() else { return true };
    MountTable::read().has_tag(&path, tags)
}

/// Checks the number of mounts: each one is a descriptor in this process, in the monitor, and in the container's
/// process until it is attached.
pub(super) fn check_mount_count(config: &ContainerConfig, mounts: usize) -> Result<(), Error> {
    if mounts <= MOUNTS_MAX {
        return Ok(());
    }
    let (volumes, over) = (config.volumes.len(), mounts - MOUNTS_MAX);
    Err(Error::invalid(format!(
        "config.mounts: {volumes} mounts, with those of CDI devices and of the image's volumes, \
         exceed the limit of {MOUNTS_MAX} by {over}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attached_mount_is_cloned_on_an_older_kernel() {
        // Runs in its own thread, whose mount namespace ends with it.
        let outcome = std::thread::spawn(|| {
            syscall::mount_namespace::unshare_mounts().expect("unshare");
            rustix::mount::mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
                .expect("private");
            let directory = tempfile::tempdir().expect("directory");
            let mount_point = directory.path().join("shm");
            let shm = crate::namespaces::make_shm((0, 0)).expect("tmpfs");
            attach(shm.as_fd(), &mount_point).expect("attach");
            std::fs::write(mount_point.join("x"), "shared").expect("write");
            let clone = clone_of(shm.as_fd(), "", Depth::Top).expect("clone");
            let path = format!("/proc/thread-self/fd/{}/x", std::os::fd::AsRawFd::as_raw_fd(&clone));
            assert_eq!(std::fs::read_to_string(path).expect("read"), "shared");
            let file = clone_of(shm.as_fd(), "x", Depth::Top).expect("clone");
            let path = format!("/proc/thread-self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
            assert_eq!(std::fs::read_to_string(path).expect("read"), "shared");
            detach(&mount_point).expect("detach");
            detach(&mount_point).expect("detach twice");
            assert!(!mount_point.join("x").exists());
        });
        outcome.join().expect("the thread's assertions hold");
    }
}
