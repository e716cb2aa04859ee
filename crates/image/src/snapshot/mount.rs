//! Overlay mounts of snapshots, as descriptors.

use std::path::{Path, PathBuf};

use rustix::{
    fd::{AsFd, OwnedFd},
    io::Errno,
    mount::{
        FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsmount,
        fsopen,
    },
};

use super::{
    id_map::{IdMap, MappedLayers},
    layer_options::{LayerNames, open, open_layers, set_directory, set_layers, with_short_names},
};
use crate::{Error, unpack::remove_path};

/// The lower layers of an overlay, uppermost first.
pub(super) struct LowerLayers<'a> {
    pub(super) paths: &'a [PathBuf],
    /// Map by which the layers are id-mapped, and the mount point to use if they must be attached.
    pub(super) map: Option<(&'a IdMap, PathBuf)>,
    /// SELinux label of every file of the overlay.
    pub(super) label: Option<&'a str>,
}

/// What must stay open until the overlay is created.
pub(super) struct LayerHandles {
    _mapped: Option<MappedLayers>,
    _opened: Vec<OwnedFd>,
}

impl LowerLayers<'_> {
    /// Sets the layers of a new overlay.
    pub(super) fn configure(&self, overlay: &OwnedFd, names: LayerNames) -> Result<LayerHandles, (String, Errno)> {
        if let Some(label) = self.label {
            fsconfig_set_string(overlay.as_fd(), "context", label)
                .map_err(|cause| (format!("context={label}"), cause))?;
        }
        let Some((map, point)) = &self.map else {
            let opened =
                open_layers(self.paths).map_err(|(path, cause)| (format!("lowerdir {}", path.display()), cause))?;
            set_layers(overlay, self.paths, &opened, names)
                .map_err(|(path, cause)| (format!("lowerdir {path}"), cause))?;
            return Ok(LayerHandles { _mapped: None, _opened: opened });
        };
        let mut mapped = MappedLayers::open(self.paths, map)?;
        mapped.configure(overlay, point, names)?;
        Ok(LayerHandles { _mapped: Some(mapped), _opened: Vec::new() })
    }
}

/// Mounts `lower` with the upper and the work directory in `dir`. The mount is detached, and ends with its last user.
pub(super) fn overlay(key: &str, lower: &LowerLayers<'_>, dir: &Path, readonly: bool) -> Result<OwnedFd, Error> {
    let failed = |operation: String, cause: Errno| {
        let remedy = match cause {
            Errno::NOENT => "; pull the image again",
            Errno::NODEV => "; load the kernel module overlay",
            Errno::PERM | Errno::ACCESS => "; run as root with CAP_SYS_ADMIN",
            _ => "",
        };
        Error::system(format!("mount overlay of snapshot {key}: {operation}: {cause}{remedy}"))
    };
    // An earlier mount of this key left a mark, because of which the kernel would refuse this mount: there may have
    // been a crash in between. But a snapshot does not outlive the boot, and a daemon that died loses no written page.
    let mark = dir.join("work/work/incompat");
    remove_path(&mark).map_err(|cause| failed(format!("remove {}", mark.display()), cause))?;
    with_short_names(|names| make(lower, dir, readonly, names)).map_err(|(operation, cause)| failed(operation, cause))
}

fn make(lower: &LowerLayers<'_>, dir: &Path, readonly: bool, names: LayerNames) -> Result<OwnedFd, (String, Errno)> {
    let overlay = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC).map_err(|cause| ("fsopen".into(), cause))?;
    let _handles = lower.configure(&overlay, names)?;
    let mut directories = Vec::with_capacity(2);
    for (option, name) in [("upperdir", "upper"), ("workdir", "work")] {
        let path = dir.join(name);
        let directory = open(&path).map_err(|cause| (format!("{option} {}", path.display()), cause))?;
        set_directory(&overlay, option, &path, &directory)
            .map_err(|cause| (format!("{option} {}", path.display()), cause))?;
        directories.push(directory);
    }
    // volatile: no sync at unmount, which costs more than the mount itself. index and metacopy are off, and redirects
    // are neither created nor followed: layers stay plain trees that other tools can read, and overlay attributes of a
    // hostile layer have no effect.
    fsconfig_set_flag(overlay.as_fd(), "volatile").map_err(|cause| ("volatile".into(), cause))?;
    for (option, value) in [("index", "off"), ("metacopy", "off"), ("redirect_dir", "nofollow")] {
        fsconfig_set_string(overlay.as_fd(), option, value).map_err(|cause| (format!("{option}={value}"), cause))?;
    }
    let layers = || format!("{} layers, uppermost {}", lower.paths.len(), lower.paths[0].display());
    fsconfig_create(overlay.as_fd()).map_err(|cause| (format!("create of {}", layers()), cause))?;
    let attributes = if readonly { MountAttrFlags::MOUNT_ATTR_RDONLY } else { MountAttrFlags::empty() };
    fsmount(overlay.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)
        .map_err(|cause| (format!("fsmount of {}", layers()), cause))
}
