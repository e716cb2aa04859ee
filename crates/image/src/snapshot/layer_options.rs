//! Options of an overlay that name directories: by their paths, or by descriptors where those are too long.

use std::{
    path::{Path, PathBuf},
    sync::OnceLock,
    thread,
};

use rustix::{
    fd::{AsFd, AsRawFd, OwnedFd},
    fs::{Mode, OFlags},
    io::Errno,
    mount::{FsOpenFlags, fsconfig_set_flag, fsconfig_set_string, fsopen},
};
use syscall::working_directory::unshare_working_directory;

/// Longest value of `fsconfig(FSCONFIG_SET_STRING)`, its NUL included.
const VALUE_MAX: usize = 256;

/// How layers are named if all of them must fit into one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LayerNames {
    /// Absolute: `/proc/self/fd/10`.
    Absolute,
    /// Relative to the working directory `/proc/self/fd`: `10`.
    Relative,
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

pub(super) fn open(path: &Path) -> rustix::io::Result<OwnedFd> {
    rustix::fs::open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

pub(super) fn open_layers(lower: &[PathBuf]) -> Result<Vec<OwnedFd>, (&PathBuf, Errno)> {
    lower.iter().map(|path| open(path).map_err(|cause| (path, cause))).collect()
}

/// Sets a directory by its path, so that mountinfo is readable for people; by its descriptor if the path is too long.
pub(super) fn set_directory(
    overlay: &OwnedFd,
    option: &str,
    path: &Path,
    directory: &OwnedFd,
) -> rustix::io::Result<()> {
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

pub(super) fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use rustix::mount::{FsMountFlags, MountAttrFlags, fsconfig_create, fsmount};

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
