//! Id-mapped layers: their files appear with the owners that the map of a user namespace gives them, and no file is
//! changed.
//!
//! An overlay cannot be id-mapped, but its layers can. The directory of all layers is cloned once as a detached mount,
//! which is given the map; each layer is opened below it and passed to overlayfs by descriptor. So there is one
//! id-mapped mount for any number of layers, and no process sees it. The upper and the work directory are not mapped,
//! but owned by mapped ids.
//!
//! | Linux | method |
//! |---|---|
//! | 6.13 | as described |
//! | 5.19 | the clone is attached to a directory of the store, visible on the node, while the overlay is created: overlayfs takes layers by path only |

use std::path::{Path, PathBuf};

use oci::IdMapping;
use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{CWD, Mode, OFlags},
    io::Errno,
    mount::{
        MountAttrFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, fsconfig_set_fd,
        move_mount, open_tree, unmount,
    },
};
use syscall::{idmapped_mount::map_ids, mount_attributes::MountAttributes};

use super::layer_options::{LayerNames, errno, set_layers};

/// The map of a user namespace in which an image is used.
#[derive(Debug)]
pub struct IdMap {
    /// A user namespace with this map.
    pub user_namespace: OwnedFd,
    /// Ranges of user ids.
    pub uids: Vec<IdMapping>,
    /// Ranges of group ids.
    pub gids: Vec<IdMapping>,
}

impl IdMap {
    /// Returns the owner on the node for an owner in the user namespace. Ids that are not mapped become those of root.
    pub(super) fn owner(&self, uid: u32, gid: u32) -> (u32, u32) {
        let find = |map: &[IdMapping], id| map.iter().find_map(|range| range.to_host(id));
        let outside = |map: &[IdMapping], id| find(map, id).or_else(|| find(map, 0)).unwrap_or(id);
        (outside(&self.uids, uid), outside(&self.gids, gid))
    }
}

/// Directory of the mount points, for kernels on which layers must be attached.
pub(super) const MOUNT_POINTS: &str = "id-mapped";

/// Unmounts what a crash left attached.
pub(super) fn recover(store: &Path) {
    let Ok(points) = std::fs::read_dir(store.join(MOUNT_POINTS)) else { return };
    for point in points.flatten() {
        let point = point.path();
        let _ = unmount(&point, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
        let _ = std::fs::remove_dir(&point);
    }
}

/// Layers below an id-mapped clone of their directory. If the clone had to be attached, it is unmounted when this is
/// dropped.
pub(super) struct MappedLayers {
    tree: OwnedFd,
    opened: Vec<OwnedFd>,
    names: Vec<PathBuf>,
    attached: Option<PathBuf>,
}

impl MappedLayers {
    /// Opens the layers `lower`, all of which are in the same directory.
    pub(super) fn open(lower: &[PathBuf], map: &IdMap) -> Result<Self, (String, Errno)> {
        let directory = lower.first().and_then(|path| path.parent()).unwrap_or(Path::new("/"));
        let during = |operation: &str| {
            let operation = format!("{operation} {}", directory.display());
            move |cause: Errno| (operation, cause)
        };
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let tree = open_tree(CWD, directory, flags).map_err(during("clone the mount of"))?;
        // Read-only, so that no layer can be changed where the clone is attached.
        let attributes = MountAttributes {
            set: MountAttrFlags::MOUNT_ATTR_RDONLY,
            propagation: Some(MountPropagationFlags::PRIVATE),
            ..MountAttributes::default()
        };
        attributes.apply(&tree, false).map_err(|e| during("make private and read-only the clone of")(errno(&e)))?;
        map_ids(&tree, &map.user_namespace, false).map_err(|e| during(NO_MAP)(errno(&e)))?;
        let (mut opened, mut names) = (Vec::with_capacity(lower.len()), Vec::with_capacity(lower.len()));
        for path in lower {
            let name = PathBuf::from(path.file_name().unwrap_or_default());
            // Not O_PATH, which fsconfig accepts only since Linux 6.15.
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let layer = rustix::fs::openat(&tree, &name, flags, Mode::empty());
            opened.push(layer.map_err(|cause| (format!("lowerdir {}", path.display()), cause))?);
            names.push(name);
        }
        Ok(Self { tree, opened, names, attached: None })
    }

    /// Sets the layers of a new overlay, uppermost first. `point` is where they are attached if they must be.
    pub(super) fn configure(
        &mut self,
        overlay: &OwnedFd,
        point: &Path,
        names: LayerNames,
    ) -> Result<(), (String, Errno)> {
        match self.set_by_descriptor(overlay) {
            // Before Linux 6.5, which accepts no descriptors at all, the error is EOPNOTSUPP.
            Err((_, Errno::INVAL | Errno::OPNOTSUPP)) => self.set_by_path(overlay, point, names),
            result => result,
        }
    }

    fn set_by_descriptor(&self, overlay: &OwnedFd) -> Result<(), (String, Errno)> {
        for (name, layer) in self.names.iter().zip(&self.opened) {
            fsconfig_set_fd(overlay.as_fd(), "lowerdir+", layer)
                .map_err(|cause| (format!("lowerdir {}", name.display()), cause))?;
        }
        Ok(())
    }

    /// Attaches the layers and sets them by path, as needed before Linux 6.13.
    pub(super) fn set_by_path(
        &mut self,
        overlay: &OwnedFd,
        point: &Path,
        names: LayerNames,
    ) -> Result<(), (String, Errno)> {
        let operation = || format!("attach the id-mapped layers at {}", point.display());
        std::fs::create_dir_all(point).map_err(|e| (operation(), errno(&e)))?;
        self.attached = Some(point.to_owned());
        move_mount(&self.tree, "", CWD, point, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
            .map_err(|e| (operation(), e))?;
        let paths: Vec<PathBuf> = self.names.iter().map(|name| point.join(name)).collect();
        set_layers(overlay, &paths, &self.opened, names)
    }
}

impl Drop for MappedLayers {
    fn drop(&mut self) {
        if let Some(point) = &self.attached {
            // The overlay has its own private mounts of the layers by now.
            let _ = unmount(point, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
            let _ = std::fs::remove_dir(point);
        }
    }
}

const NO_MAP: &str = "map ids (Linux 5.19 and a file system that can be id-mapped are needed) of";

#[cfg(test)]
mod tests {
    use rustix::{
        fs::AtFlags,
        mount::{FsMountFlags, FsOpenFlags, MountPropagationFlags, fsconfig_create, fsmount, fsopen, mount_change},
    };

    use super::*;

    const FIRST: u32 = 655_360;

    fn namespace() -> OwnedFd {
        let mut child = std::process::Command::new("unshare")
            .args(["--user", "--", "sh", "-c", "echo in; read gone"])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = child.stdout.as_mut().unwrap();
        std::io::Read::read_exact(stdout, &mut [0; 3]).unwrap();
        for file in ["uid_map", "gid_map"] {
            std::fs::write(format!("/proc/{}/{file}", child.id()), format!("0 {FIRST} 65536")).unwrap();
        }
        let file = std::fs::File::open(format!("/proc/{}/ns/user", child.id())).unwrap();
        drop(child.stdin.take());
        child.wait().unwrap();
        file.into()
    }

    #[test]
    fn an_older_kernel_takes_layers_that_are_attached() {
        // On its own thread, whose mount namespace ends with it.
        let outcome = std::thread::spawn(|| {
            syscall::mount_namespace::unshare_mounts().unwrap();
            mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).unwrap();
            let directory = tempfile::tempdir().unwrap();
            let lower = ["a", "b"].map(|name| directory.path().join(name));
            lower.iter().for_each(|layer| std::fs::create_dir(layer).unwrap());
            let map = IdMap { user_namespace: namespace(), uids: Vec::new(), gids: Vec::new() };
            let point = directory.path().join(MOUNT_POINTS).join("1");
            let overlay = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC).unwrap();
            let mut mapped = MappedLayers::open(&lower, &map).unwrap();
            mapped.set_by_path(&overlay, &point, LayerNames::Absolute).unwrap();
            assert!(std::fs::write(point.join("a/x"), "").is_err(), "the attached layers cannot be written");
            fsconfig_create(overlay.as_fd()).unwrap();
            let mount = fsmount(overlay.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty()).unwrap();
            drop(mapped);
            assert!(!point.exists());
            let stat = rustix::fs::statat(&mount, "", AtFlags::EMPTY_PATH).unwrap();
            assert_eq!((stat.st_uid, stat.st_gid), (FIRST, FIRST));

            // What a crash left attached is unmounted when the store is opened.
            let overlay = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC).unwrap();
            let mut mapped = MappedLayers::open(&lower, &map).unwrap();
            mapped.set_by_path(&overlay, &point, LayerNames::Absolute).unwrap();
            std::mem::forget(mapped);
            recover(directory.path());
            assert!(!point.exists() && lower.iter().all(|layer| layer.exists()));
        });
        outcome.join().expect("the thread's assertions hold");
    }
}
