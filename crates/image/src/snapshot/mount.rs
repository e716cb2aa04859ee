//! The overlay of a snapshot, as a descriptor.

use std::path::{Path, PathBuf};

use rustix::{
    fd::{AsFd, AsRawFd, OwnedFd},
    fs::{Mode, OFlags},
    io::Errno,
    mount::{
        FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsmount,
        fsopen,
    },
};

use super::mapped::{IdMap, Mapped};
use crate::{Error, unpack::remove_path};

/// Longest value of `fsconfig(FSCONFIG_SET_STRING)`, its NUL included.
const VALUE_MAX: usize = 256;

/// Where layers come from, uppermost first.
pub(super) struct Lower<'a> {
    pub(super) paths: &'a [PathBuf],
    /// Shown as a user namespace's, and where they may be attached for it.
    pub(super) map: Option<(&'a IdMap, PathBuf)>,
}

impl Lower<'_> {
    /// Gives them to a new overlay. What is returned is needed until it is mounted.
    pub(super) fn give(&self, overlay: &OwnedFd) -> Result<Option<Mapped>, (String, Errno)> {
        let Some((map, point)) = &self.map else {
            let opened =
                open_layers(self.paths).map_err(|(path, cause)| (format!("lowerdir {}", path.display()), cause))?;
            set_layers(overlay, self.paths, &opened).map_err(|(path, cause)| (format!("lowerdir {path}"), cause))?;
            return Ok(None);
        };
        let mut mapped = Mapped::open(self.paths, map)?;
        mapped.give(overlay, point)?;
        Ok(Some(mapped))
    }
}

/// Mounts `lower` under `dir`'s upper and work. The mount is attached nowhere: it ends with its last user.
pub(super) fn overlay(key: &str, lower: &Lower<'_>, dir: &Path, readonly: bool) -> Result<OwnedFd, Error> {
    let failed = |what: String, cause: Errno| {
        let way_out = match cause {
            Errno::NOENT => "; pull the image again",
            Errno::NODEV => "; load the kernel module overlay",
            Errno::PERM | Errno::ACCESS => "; run as root with CAP_SYS_ADMIN",
            _ => "",
        };
        Error::system(format!("mount overlay of snapshot {key}: {what}: {cause}{way_out}"))
    };
    // A mark that an earlier mount of this key left. It would forbid this one, for fear of a crash between them; but a
    // snapshot does not outlive the boot (and a dead daemon loses no written page).
    let mark = dir.join("work/work/incompat");
    remove_path(&mark).map_err(|cause| failed(format!("remove {}", mark.display()), cause))?;

    let overlay = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC).map_err(|cause| failed("fsopen".into(), cause))?;
    let _mapped = lower.give(&overlay).map_err(|(what, cause)| failed(what, cause))?;
    for (option, name) in [("upperdir", "upper"), ("workdir", "work")] {
        let path = dir.join(name);
        let folder = open(&path).map_err(|cause| failed(format!("{option} {}", path.display()), cause))?;
        set_folder(&overlay, option, &path, &folder)
            .map_err(|cause| failed(format!("{option} {}", path.display()), cause))?;
    }
    // volatile: no sync at unmount (it costs more than the mount itself). index and metacopy off, redirects
    // neither made nor followed: layers stay plain trees that other tools read, and a hostile layer's attributes say nothing.
    fsconfig_set_flag(overlay.as_fd(), "volatile").map_err(|cause| failed("volatile".into(), cause))?;
    for (option, value) in [("index", "off"), ("metacopy", "off"), ("redirect_dir", "nofollow")] {
        fsconfig_set_string(overlay.as_fd(), option, value)
            .map_err(|cause| failed(format!("{option}={value}"), cause))?;
    }
    let what = || format!("{} layers, uppermost {}", lower.paths.len(), lower.paths[0].display());
    fsconfig_create(overlay.as_fd()).map_err(|cause| failed(format!("create of {}", what()), cause))?;
    let attributes = if readonly { MountAttrFlags::MOUNT_ATTR_RDONLY } else { MountAttrFlags::empty() };
    fsmount(overlay.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)
        .map_err(|cause| failed(format!("fsmount of {}", what()), cause))
}

fn open(path: &Path) -> rustix::io::Result<OwnedFd> {
    rustix::fs::open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

pub(super) fn open_layers(lower: &[PathBuf]) -> Result<Vec<OwnedFd>, (&PathBuf, Errno)> {
    lower.iter().map(|path| open(path).map_err(|cause| (path, cause))).collect()
}

/// A folder by its path, so that mountinfo can be read by people; through its descriptor where the path is too long.
fn set_folder(overlay: &OwnedFd, option: &str, path: &Path, folder: &OwnedFd) -> rustix::io::Result<()> {
    let text = path.to_str().filter(|text| text.len() < VALUE_MAX && !text.contains(['\\', ':', ',']));
    match text {
        Some(text) => fsconfig_set_string(overlay.as_fd(), option, text),
        None => fsconfig_set_string(overlay.as_fd(), option, by_descriptor(folder).as_str()),
    }
}

fn by_descriptor(folder: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", folder.as_fd().as_raw_fd())
}

/// One by one (`lowerdir+`, Linux 6.8), else all in one value, as short as can be.
pub(super) fn set_layers(overlay: &OwnedFd, lower: &[PathBuf], opened: &[OwnedFd]) -> Result<(), (String, Errno)> {
    for (at, (path, folder)) in lower.iter().zip(opened).enumerate() {
        match set_folder(overlay, "lowerdir+", path, folder) {
            Ok(()) => {}
            Err(Errno::INVAL) if at == 0 => return set_layers_at_once(overlay, opened),
            Err(cause) => return Err((path.display().to_string(), cause)),
        }
    }
    Ok(())
}

fn set_layers_at_once(overlay: &OwnedFd, opened: &[OwnedFd]) -> Result<(), (String, Errno)> {
    let all: Vec<_> = opened.iter().map(by_descriptor).collect();
    let all = all.join(":");
    if all.len() >= VALUE_MAX {
        return Err((format!("of {} layers at once: Linux 6.8 is needed for so many", opened.len()), Errno::TOOBIG));
    }
    fsconfig_set_string(overlay.as_fd(), "lowerdir", all.as_str()).map_err(|cause| (all.clone(), cause))
}
