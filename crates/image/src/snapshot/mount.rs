//! The overlay of a snapshot, as a descriptor.

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

use super::mapped::{IdMap, Mapped, errno};
use crate::{Error, unpack::remove_path};

/// Longest value of `fsconfig(FSCONFIG_SET_STRING)`, its NUL included.
const VALUE_MAX: usize = 256;

/// Where layers come from, uppermost first.
pub(super) struct Lower<'a> {
    pub(super) paths: &'a [PathBuf],
    /// Shown as a user namespace's, and where they may be attached for it.
    pub(super) map: Option<(&'a IdMap, PathBuf)>,
    /// What SELinux calls every file of the overlay.
    pub(super) label: Option<&'a str>,
}

/// What must stay open until an overlay is created.
pub(super) struct Given {
    _mapped: Option<Mapped>,
    _opened: Vec<OwnedFd>,
}

/// How layers are named where all of them must fit into one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Names {
    /// `/proc/self/fd/10`
    Whole,
    /// `10`: the working directory is `/proc/self/fd`.
    Short,
}

impl Lower<'_> {
    /// Gives them to a new overlay.
    pub(super) fn give(&self, overlay: &OwnedFd, names: Names) -> Result<Given, (String, Errno)> {
        if let Some(label) = self.label {
            fsconfig_set_string(overlay.as_fd(), "context", label)
                .map_err(|cause| (format!("context={label}"), cause))?;
        }
        let Some((map, point)) = &self.map else {
            let opened =
                open_layers(self.paths).map_err(|(path, cause)| (format!("lowerdir {}", path.display()), cause))?;
            set_layers(overlay, self.paths, &opened, names)
                .map_err(|(path, cause)| (format!("lowerdir {path}"), cause))?;
            return Ok(Given { _mapped: None, _opened: opened });
        };
        let mut mapped = Mapped::open(self.paths, map)?;
        mapped.give(overlay, point, names)?;
        Ok(Given { _mapped: Some(mapped), _opened: Vec::new() })
    }
}

/// Makes an overlay; where its layers do not fit into one value, from a thread whose working directory makes their
/// names short.
pub(super) fn with_room<T: Send>(
    make: impl Fn(Names) -> Result<T, (String, Errno)> + Sync,
) -> Result<T, (String, Errno)> {
    match make(Names::Whole) {
        Err((_, Errno::TOOBIG)) => {}
        made => return made,
    }
    let short = || {
        let told = |cause: std::io::Error| ("change to /proc/self/fd".to_owned(), errno(&cause));
        unshare_working_directory().map_err(told)?;
        rustix::process::chdir("/proc/self/fd").map_err(|errno| told(errno.into()))?;
        make(Names::Short)
    };
    thread::scope(|scope| scope.spawn(short).join().unwrap_or_else(|_| Err(("a bug in a thread".into(), Errno::IO))))
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
    with_room(|names| make(lower, dir, readonly, names)).map_err(|(what, cause)| failed(what, cause))
}

fn make(lower: &Lower<'_>, dir: &Path, readonly: bool, names: Names) -> Result<OwnedFd, (String, Errno)> {
    let overlay = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC).map_err(|cause| ("fsopen".into(), cause))?;
    let _given = lower.give(&overlay, names)?;
    let mut directories = Vec::with_capacity(2);
    for (option, name) in [("upperdir", "upper"), ("workdir", "work")] {
        let path = dir.join(name);
        let directory = open(&path).map_err(|cause| (format!("{option} {}", path.display()), cause))?;
        set_directory(&overlay, option, &path, &directory)
            .map_err(|cause| (format!("{option} {}", path.display()), cause))?;
        directories.push(directory);
    }
    // volatile: no sync at unmount (it costs more than the mount itself). index and metacopy off, redirects
    // neither made nor followed: layers stay plain trees that other tools read, and a hostile layer's attributes say
    // nothing.
    fsconfig_set_flag(overlay.as_fd(), "volatile").map_err(|cause| ("volatile".into(), cause))?;
    for (option, value) in [("index", "off"), ("metacopy", "off"), ("redirect_dir", "nofollow")] {
        fsconfig_set_string(overlay.as_fd(), option, value).map_err(|cause| (format!("{option}={value}"), cause))?;
    }
    let what = || format!("{} layers, uppermost {}", lower.paths.len(), lower.paths[0].display());
    fsconfig_create(overlay.as_fd()).map_err(|cause| (format!("create of {}", what()), cause))?;
    let attributes = if readonly { MountAttrFlags::MOUNT_ATTR_RDONLY } else { MountAttrFlags::empty() };
    fsmount(overlay.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)
        .map_err(|cause| (format!("fsmount of {}", what()), cause))
}

fn open(path: &Path) -> rustix::io::Result<OwnedFd> {
    rustix::fs::open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

pub(super) fn open_layers(lower: &[PathBuf]) -> Result<Vec<OwnedFd>, (&PathBuf, Errno)> {
    lower.iter().map(|path| open(path).map_err(|cause| (path, cause))).collect()
}

/// A directory by its path, so that mountinfo can be read by people; through its descriptor where the path is too long.
fn set_directory(overlay: &OwnedFd, option: &str, path: &Path, directory: &OwnedFd) -> rustix::io::Result<()> {
    let text = path.to_str().filter(|text| text.len() < VALUE_MAX && !text.contains(['\\', ':', ',']));
    match text {
        Some(text) => fsconfig_set_string(overlay.as_fd(), option, text),
        None => fsconfig_set_string(overlay.as_fd(), option, by_descriptor(directory).as_str()),
    }
}

fn by_descriptor(directory: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", directory.as_fd().as_raw_fd())
}

/// One by one (`lowerdir+`, Linux 6.8), else all in one value, as short as can be.
pub(super) fn set_layers(
    overlay: &OwnedFd,
    lower: &[PathBuf],
    opened: &[OwnedFd],
    names: Names,
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

/// Before Linux 6.5 overlayfs looks at its options only when it is created: then it is too late to try another.
fn options_are_read_late() -> bool {
    static LATE: OnceLock<bool> = OnceLock::new();
    LATE.get().copied().unwrap_or_else(|| {
        let Ok(overlay) = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC) else { return false };
        let late = fsconfig_set_flag(overlay.as_fd(), "no-such-option").is_ok();
        *LATE.get_or_init(|| late)
    })
}

fn set_layers_at_once(overlay: &OwnedFd, opened: &[OwnedFd], names: Names) -> Result<(), (String, Errno)> {
    let name = |directory: &OwnedFd| match names {
        Names::Whole => by_descriptor(directory),
        Names::Short => directory.as_raw_fd().to_string(),
    };
    let all: Vec<_> = opened.iter().map(name).collect();
    let all = all.join(":");
    if all.len() >= VALUE_MAX {
        return Err((format!("of {} layers at once: Linux 6.8 is needed for so many", opened.len()), Errno::TOOBIG));
    }
    fsconfig_set_string(overlay.as_fd(), "lowerdir", all.as_str()).map_err(|cause| (all.clone(), cause))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As before Linux 6.8.
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
        assert_eq!(make(Names::Whole).unwrap_err().1, Errno::TOOBIG);
        let before = std::env::current_dir().unwrap();
        let mount = with_room(make).unwrap();
        assert_eq!(std::env::current_dir().unwrap(), before);
        for layer in &layers {
            rustix::fs::statat(&mount, layer.file_name().unwrap(), rustix::fs::AtFlags::empty()).unwrap();
        }
    }
}
