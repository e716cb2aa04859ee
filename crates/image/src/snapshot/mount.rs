//! Overlay mounts of snapshots, as descriptors.

use std::{
    path::{Path, PathBuf},
    sync::OnceLock,
    thread,
};

use rustix::{
    fd::{AsFd, AsRawFd, OwnedFd},
    fs::{Mode, OFlags},
    io::Errno,
    mount::{
        FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsmount,
        fsopen,
    },
};
use syscall::working_directory::unshare_working_directory;

use super::id_map::{IdMap, MappedLayers, errno};
use crate::{Error, unpack::remove_path};

/// Longest value of `fsconfig(FSCONFIG_SET_STRING)`, its NUL included.
const VALUE_MAX: usize = 256;

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

/// How layers are named if all of them must fit into one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LayerNames {
    /// Absolute: `/proc/self/fd/10`.
    Absolute,
    /// Relative to the working directory `/proc/self/fd`: `10`.
    Relative,
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

/// Creates an overlay with `make`. If its layers do not fit into one value, this is repeated on a thread whose working
/// directory allows relative names.
pub(super) fn with_short_names<T: Send>(
    make: impl Fn(LayerNames) -> Result<T, (String, Errno)> + Sync,
) -> Result<T, (String, Errno)> {
    match make(LayerNames::Absolute) {
        Err((_, Errno::TOOBIG)) => {}
        result => return result,
    }
    let short = || {
        let failed = |cause: std::io::Error| ("change to /proc/self/fd".to_owned(), errno(&cause));
        unshare_working_directory().map_err(failed)?;
        rustix::process::chdir("/proc/self/fd").map_err(|errno| failed(errno.into()))?;
        make(LayerNames::Relative)
    };
    thread::scope(|scope| {
        scope.spawn(short).join().unwrap_or_else(|_| Err(("the mounting thread panicked".into(), Errno::IO)))
    })
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

fn open(path: &Path) -> rustix::io::Result<OwnedFd> {
    rustix::fs::open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

pub(super) fn open_layers(lower: &[PathBuf]) -> Result<Vec<OwnedFd>, (&PathBuf, Errno)> {
    lower.iter().map(|path| open(path).map_err(|cause| (path, cause))).collect()
}

/// Sets a directory by its path, so that mountinfo is readable for people; by its descriptor if the path is too long.
fn set_directory(overlay: &OwnedFd, option: &str, path: &Path, directory: &OwnedFd) -> rustix::io::Result<()> {
    let text = path.to_str().filter(|text| text.len() < VALUE_MAX && !text.contains(['\\', ':', ',']));
    match text {
        Some(text) => fsconfig_set_string(overlay.as_fd(), option, text),
        None => fsconfig_set_string(overlay.as_fd(), option, descriptor_path(directory).as_str()),
    }
}

fn descriptor_path(directory: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", directory.as_fd().as_raw_fd())
}

/// Sets the layers one by one (`lowerdir+`, Linux 6.8), else all of them in one value.
pub(super) fn set_layers(
    overlay: &OwnedFd,
    lower: &[PathBuf],
    opened: &[OwnedFd],
    names: LayerNames,
) -> Result<(), (String, Errno)> {
    if options_are_read_late() {
        return set_layers_at_once(overlay, opened, names);
    }
    for (at, (path, directory)) in lower.iter().zip(opened).enumerate() {
        match set_directory(overlay, "lowerdir+", path, directory) {
            Ok(()) => {}
            Err(Errno::INVAL) if at == 0 => return set_layers_at_once(overlay, opened, names),
            Err(cause) => return Err((path.display().to_string(), cause)),
        }
    }
    Ok(())
}

/// Whether overlayfs reads its options only when it is created, as before Linux 6.5: then it is too late to try another
/// option.
fn options_are_read_late() -> bool {
    static LATE: OnceLock<bool> = OnceLock::new();
    LATE.get().copied().unwrap_or_else(|| {
        let Ok(overlay) = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC) else { return false };
        let late = fsconfig_set_flag(overlay.as_fd(), "no-such-option").is_ok();
        *LATE.get_or_init(|| late)
    })
}

fn set_layers_at_once(overlay: &OwnedFd, opened: &[OwnedFd], names: LayerNames) -> Result<(), (String, Errno)> {
    let name = |directory: &OwnedFd| match names {
        LayerNames::Absolute => descriptor_path(directory),
        LayerNames::Relative => directory.as_raw_fd().to_string(),
    };
    let all: Vec<_> = opened.iter().map(name).collect();
    let all = all.join(":");
    if all.len() >= VALUE_MAX {
        return Err((format!("of {} layers at once: so many require Linux 6.8", opened.len()), Errno::TOOBIG));
    }
    fsconfig_set_string(overlay.as_fd(), "lowerdir", all.as_str()).map_err(|cause| (all.clone(), cause))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As on kernels before Linux 6.8.
    #[test]
    fn many_layers_fit_into_one_value() {
        let directory = tempfile::tempdir().unwrap();
        let layers: Vec<PathBuf> = (0..40).map(|number| directory.path().join(number.to_string())).collect();
        for layer in &layers {
            std::fs::create_dir(layer).unwrap();
            std::fs::write(layer.join(layer.file_name().unwrap()), "").unwrap();
        }
        let make = |names| {
            let overlay = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC).map_err(|cause| ("fsopen".into(), cause))?;
            let opened = open_layers(&layers).map_err(|(path, cause)| (path.display().to_string(), cause))?;
            set_layers_at_once(&overlay, &opened, names)?;
            fsconfig_create(overlay.as_fd()).map_err(|cause| ("create".into(), cause))?;
            fsmount(overlay.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())
                .map_err(|cause| ("fsmount".into(), cause))
        };
        assert_eq!(make(LayerNames::Absolute).unwrap_err().1, Errno::TOOBIG);
        let before = std::env::current_dir().unwrap();
        let mount = with_short_names(make).unwrap();
        assert_eq!(std::env::current_dir().unwrap(), before);
        for layer in &layers {
            rustix::fs::statat(&mount, layer.file_name().unwrap(), rustix::fs::AtFlags::empty()).unwrap();
        }
    }
}
