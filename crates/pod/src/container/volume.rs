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
use crate::{Error, error::failed};

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

/// A file of our own, private.
pub(crate) fn open_file(path: &Path, readonly: bool) -> Result<OwnedFd, Error> {
    let told = format!("clone {}", path.display());
    let tree = clone(path, Depth::All).map_err(failed(&told))?;
    let mut attributes =
        MountAttributes { propagation: Some(MountPropagationFlags::PRIVATE), ..MountAttributes::default() };
    if readonly {
        attributes.set = MountAttrFlags::MOUNT_ATTR_RDONLY;
    }
    attributes.apply(&tree, true).map_err(failed(told))?;
    Ok(tree)
}

/// Another mount of what a detached mount shows. Before Linux 6.15 only what is attached can be cloned: then it is attached
/// at `point`, which is made, for as long as the pod lives.
pub(crate) fn clone_detached(mount: BorrowedFd<'_>, point: &Path) -> Result<OwnedFd, Error> {
    match clone_of(mount) {
        Err(Errno::INVAL) => {
            attach(mount, point)?;
            clone_of(mount)
        }
        cloned => cloned,
    }
    .map_err(failed("clone the pod's /dev/shm"))
}

fn clone_of(mount: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let flags = OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::AT_EMPTY_PATH;
    open_tree(mount, "", flags)
}

fn attach(mount: BorrowedFd<'_>, point: &Path) -> Result<(), Error> {
    let told = format!("attach the pod's /dev/shm at {}", point.display());
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
    let Ok(table) = std::fs::read_to_string("/proc/self/mountinfo") else { return true };
    let mut best: Option<(usize, bool)> = None;
    for line in table.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let Some(point) = fields.get(4) else { continue };
        let shared =
            fields.iter().skip(6).take_while(|f| **f != "-").any(|f| tags.iter().any(|tag| f.starts_with(tag)));
        let longer = best.is_none_or(|(length, _)| point.len() >= length);
        if path.starts_with(unescape(point)) && longer {
            best = Some((point.len(), shared));
        }
    }
    best.is_none_or(|(_, shared)| shared)
}

/// mountinfo writes blanks and the like as `\040`.
fn unescape(field: &str) -> String {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field.as_bytes();
    while let [first, tail @ ..] = rest {
        let octal = (*first == b'\\').then(|| tail.get(..3)).flatten();
        let value = octal.and_then(|d| u8::from_str_radix(std::str::from_utf8(d).ok()?, 8).ok());
        match value {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[3..];
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
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
            let clone = clone_of(shm.as_fd()).expect("clone");
            let path = format!("/proc/thread-self/fd/{}/x", std::os::fd::AsRawFd::as_raw_fd(&clone));
            assert_eq!(std::fs::read_to_string(path).expect("read"), "shared");
            detach(&point).expect("detach");
            detach(&point).expect("detach twice");
            assert!(!point.join("x").exists());
        });
        outcome.join().expect("the thread's assertions hold");
    }

    #[test]
    fn blanks_in_mount_points_are_read() {
        assert_eq!(unescape("/a\\040b\\134c"), "/a b\\c");
        assert_eq!(unescape("/a\\04"), "/a\\04");
    }
}
