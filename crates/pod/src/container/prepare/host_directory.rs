//! Creation of a missing directory of the node that a volume names.
//!
//! A `hostPath` without a type demands no check from kubelet, and containerd and CRI-O create the directory. Helm
//! charts rely on it for their state and for sockets of programs that are not installed yet.

use std::{
    ffi::OsStr,
    path::{Component, Path},
};

use rustix::{
    fd::OwnedFd,
    fs::{CWD, Mode, OFlags, fchmod, fstat, mkdirat, openat},
    io::Errno,
};

/// Flags with which a directory is opened to create or open another one in it.
const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Creates an absolute path with all missing parent directories, mode 0755, and returns it open.
///
/// The existing part is resolved like every other path of the node, symbolic links included (`/var/run`). The missing
/// part is created one name at a time, each in the directory created before, and no link is followed there. Hence a
/// process that can write to a parent directory, such as one in a container with a volume of it, cannot have
/// directories created elsewhere by placing a link in between.
///
/// # Errors
/// `ELOOP` for a link in the missing part, also a dangling one; `EINVAL` for `..` there.
pub(super) fn create(path: &Path) -> Result<OwnedFd, Errno> {
    let mut directory = openat(CWD, c"/", DIRECTORY, Mode::empty())?;
    let mut is_missing = false;
    for component in path.components() {
        let name = match component {
            Component::RootDir | Component::CurDir | Component::Prefix(_) => continue,
            Component::ParentDir if is_missing => return Err(Errno::INVAL),
            Component::ParentDir => OsStr::new(".."),
            Component::Normal(name) => name,
        };
        directory = match openat(&directory, name, DIRECTORY | OFlags::PATH, Mode::empty()) {
            Err(Errno::NOENT) => {
                is_missing = true;
                create_in(&directory, name)?
            }
            _ if is_missing => create_in(&directory, name)?,
            opened => opened?,
        };
    }
    Ok(directory)
}

/// Creates one directory, or opens the one that another process created in the meantime.
fn create_in(parent: &OwnedFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    let mode = Mode::from_raw_mode(0o755);
    let is_new = match mkdirat(parent, name, mode) {
        Ok(()) => true,
        Err(Errno::EXIST) => false,
        Err(errno) => return Err(errno),
    };
    let directory = openat(parent, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty()).map_err(|errno| match errno {
        // With O_DIRECTORY and O_NOFOLLOW the kernel returns this error for a link, too (open(2)).
        Errno::NOTDIR => Errno::LOOP,
        errno => errno,
    })?;
    // The daemon's umask must not restrict the mode.
    let current = Mode::from_raw_mode(fstat(&directory)?.st_mode);
    if is_new && !current.contains(mode) {
        fchmod(&directory, current | mode)?;
    }
    Ok(directory)
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{PermissionsExt, symlink},
    };

    use super::*;

    #[test]
    fn missing_directories_are_created() {
        let top = tempfile::tempdir().expect("a directory");
        let top = top.path();
        fs::create_dir(top.join("real")).expect("a directory");
        symlink("real", top.join("link")).expect("a link");
        for path in ["a", "a/b/c", "link/./d/e", "link/../f"] {
            create(&top.join(path)).unwrap_or_else(|errno| panic!("{path}: {errno}"));
        }
        for path in ["a/b/c", "real/d/e", "f"] {
            let mode = fs::metadata(top.join(path)).expect(path).permissions().mode();
            assert_eq!(mode & 0o7777, 0o755, "{path}");
        }
    }

    #[test]
    fn no_link_is_followed_in_the_missing_part() {
        let top = tempfile::tempdir().expect("a directory");
        let top = top.path();
        symlink(top.join("outside"), top.join("dangling")).expect("a link");
        fs::write(top.join("file"), "").expect("a file");
        for (path, errno) in [
            ("dangling", Errno::LOOP),
            ("dangling/below", Errno::LOOP),
            ("missing/../x", Errno::INVAL),
            ("file/x", Errno::NOTDIR),
        ] {
            assert_eq!(create(&top.join(path)).map(drop), Err(errno), "{path}");
        }
        assert!(!top.join("outside").exists() && !top.join("x").exists());
    }

    #[test]
    fn a_link_placed_in_the_meantime_is_not_followed() {
        let top = tempfile::tempdir().expect("a directory");
        let (inside, outside) = (top.path().join("inside"), top.path().join("outside"));
        fs::create_dir(&inside).expect("a directory");
        fs::create_dir(&outside).expect("a directory");
        let parent = openat(CWD, &inside, DIRECTORY, Mode::empty()).expect("open");
        symlink(&outside, inside.join("made")).expect("a link");
        assert_eq!(create_in(&parent, OsStr::new("made")).map(drop), Err(Errno::LOOP));
    }
}
