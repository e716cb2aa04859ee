//! Layers as a user namespace's: their files show the owners that its map gives, and no file is changed.
//!
//! An overlay cannot be id-mapped, its layers can. The directory of all layers is cloned once as a detached mount, that
//! is given the map, and each layer is opened below it and handed to overlayfs by its descriptor: one id-mapped mount
//! for any number of layers, and none that anybody sees. Upper and work stay as they are, owned by mapped ids.
//!
//! | Linux | how |
//! |---|---|
//! | 6.13 | as said |
//! | 5.19 | the clone is attached to a directory of the store, seen by the node, while the overlay is made: overlayfs takes layers by their paths only |

use std::path::{Path, PathBuf};

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

use super::mount::{Names, set_layers};

/// A range of ids: `length` from `inside` on are `length` from `outside` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdRange {
    /// First id in the user namespace.
    pub inside: u32,
    /// First id on the node.
    pub outside: u32,
    /// How many.
    pub length: u32,
}

/// Whose files the files of an image are to be.
#[derive(Debug)]
pub struct IdMap {
    /// A user namespace with this map.
    pub user_namespace: OwnedFd,
    /// Its users.
    pub uids: Vec<IdRange>,
    /// Its groups.
    pub gids: Vec<IdRange>,
}

impl IdMap {
    /// What an owner inside is outside; one that is not mapped is root's.
    pub(super) fn owner(&self, uid: u32, gid: u32) -> (u32, u32) {
        let find = |ranges: &[IdRange], id: u32| {
            ranges.iter().find_map(|range| {
                let at = id.checked_sub(range.inside).filter(|at| *at < range.length)?;
                range.outside.checked_add(at)
            })
        };
        let outside = |ranges: &[IdRange], id| find(ranges, id).or_else(|| find(ranges, 0)).unwrap_or(id);
        (outside(&self.uids, uid), outside(&self.gids, gid))
    }
}

/// Where they are attached if they must be.
pub(super) const POINTS: &str = "id-mapped";

/// Takes away what a crash left attached.
pub(super) fn recover(store: &Path) {
    let Ok(points) = std::fs::read_dir(store.join(POINTS)) else { return };
    for point in points.flatten() {
        let point = point.path();
        let _ = unmount(&point, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
        let _ = std::fs::remove_dir(&point);
    }
}

/// Layers below an id-mapped clone of their directory; what is attached for them goes with this.
pub(super) struct Mapped {
    tree: OwnedFd,
    opened: Vec<OwnedFd>,
    names: Vec<PathBuf>,
    attached: Option<PathBuf>,
}

impl Mapped {
    /// `lower` are directories directly in one directory.
    pub(super) fn open(lower: &[PathBuf], map: &IdMap) -> Result<Self, (String, Errno)> {
        let directory = lower.first().and_then(|path| path.parent()).unwrap_or(Path::new("/"));
        let during = |what: &str| {
            let what = format!("{what} {}", directory.display());
            move |cause: Errno| (what, cause)
        };
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let tree = open_tree(CWD, directory, flags).map_err(during("clone the mount of"))?;
        // Read-only, too: whatever is done where it is attached, no layer changes.
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
            // Not O_PATH, which fsconfig takes since Linux 6.15 only.
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let layer = rustix::fs::openat(&tree, &name, flags, Mode::empty());
            opened.push(layer.map_err(|cause| (format!("lowerdir {}", path.display()), cause))?);
            names.push(name);
        }
        Ok(Self { tree, opened, names, attached: None })
    }

    /// Gives the layers, uppermost first, to a new overlay. `point` is where they may be attached if they must.
    pub(super) fn give(&mut self, overlay: &OwnedFd, point: &Path, names: Names) -> Result<(), (String, Errno)> {
        match self.by_descriptor(overlay) {
            // The second is said before Linux 6.5, which reads no descriptors at all.
            Err((_, Errno::INVAL | Errno::OPNOTSUPP)) => self.by_path(overlay, point, names),
            given => given,
        }
    }

    fn by_descriptor(&self, overlay: &OwnedFd) -> Result<(), (String, Errno)> {
        for (name, layer) in self.names.iter().zip(&self.opened) {
            fsconfig_set_fd(overlay.as_fd(), "lowerdir+", layer)
                .map_err(|cause| (format!("lowerdir {}", name.display()), cause))?;
        }
        Ok(())
    }

    /// Before Linux 6.13.
    pub(super) fn by_path(&mut self, overlay: &OwnedFd, point: &Path, names: Names) -> Result<(), (String, Errno)> {
        let told = || format!("attach the id-mapped layers at {}", point.display());
        std::fs::create_dir_all(point).map_err(|e| (told(), errno(&e)))?;
        self.attached = Some(point.to_owned());
        move_mount(&self.tree, "", CWD, point, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH).map_err(|e| (told(), e))?;
        let paths: Vec<PathBuf> = self.names.iter().map(|name| point.join(name)).collect();
        set_layers(overlay, &paths, &self.opened, names)
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        if let Some(point) = &self.attached {
            // The overlay has mounts of its own of the layers by now.
            let _ = unmount(point, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
            let _ = std::fs::remove_dir(point);
        }
    }
}

const NO_MAP: &str = "map ids (Linux 5.19 and a file system that can be id-mapped are needed) of";

pub(super) fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

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
        let said = child.stdout.as_mut().unwrap();
        std::io::Read::read_exact(said, &mut [0; 3]).unwrap();
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
        // A thread of its own: its mount namespace goes with it.
        let outcome = std::thread::spawn(|| {
            syscall::mount_namespace::unshare_mounts().unwrap();
            mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).unwrap();
            let directory = tempfile::tempdir().unwrap();
            let lower = ["a", "b"].map(|name| directory.path().join(name));
            lower.iter().for_each(|layer| std::fs::create_dir(layer).unwrap());
            let map = IdMap { user_namespace: namespace(), uids: Vec::new(), gids: Vec::new() };
            let point = directory.path().join(POINTS).join("1");
            let overlay = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC).unwrap();
            let mut mapped = Mapped::open(&lower, &map).unwrap();
            mapped.by_path(&overlay, &point, Names::Whole).unwrap();
            assert!(std::fs::write(point.join("a/x"), "").is_err(), "what is attached cannot be written");
            fsconfig_create(overlay.as_fd()).unwrap();
            let mount = fsmount(overlay.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty()).unwrap();
            drop(mapped);
            assert!(!point.exists());
            let stat = rustix::fs::statat(&mount, "", AtFlags::EMPTY_PATH).unwrap();
            assert_eq!((stat.st_uid, stat.st_gid), (FIRST, FIRST));

            // What a crash left goes when the store is opened.
            let overlay = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC).unwrap();
            let mut mapped = Mapped::open(&lower, &map).unwrap();
            mapped.by_path(&overlay, &point, Names::Whole).unwrap();
            std::mem::forget(mapped);
            recover(directory.path());
            assert!(!point.exists() && lower.iter().all(|layer| layer.exists()));
        });
        outcome.join().expect("the thread's assertions hold");
    }
}
