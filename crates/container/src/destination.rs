//! Paths inside the container's root: resolved by the kernel with `RESOLVE_IN_ROOT`, worked on by descriptor, created
//! where they are absent.

use std::ffi::{CStr, CString};

use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{FileType, Mode, OFlags, ResolveFlags, fstat, mkdirat, openat, openat2, readlinkat},
    io::Errno,
};

use crate::{Error, error::During};

/// As many symlinks as the kernel follows in one path.
const SYMLINKS_MAX: usize = 40;

/// What stands at the end of the path, where it must be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Directory,
    File,
}

const WALK: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Opens (`O_PATH`) what is at `path` inside `root`.
pub(crate) fn find(root: BorrowedFd<'_>, path: &CStr) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    loop {
        match openat2(root, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve) {
            // A rename elsewhere on the machine may race with `..` in a symlink.
            Err(Errno::AGAIN | Errno::INTR) => {}
            result => return result,
        }
    }
}

/// Opens what is at `path` inside `root`, creating what is missing (directories 0755, file 0644).
pub(crate) fn find_or_make(root: BorrowedFd<'_>, path: &CStr, shape: Shape) -> Result<OwnedFd, Error> {
    match find(root, path) {
        Err(Errno::NOENT) => {
            let made = match make_last(root, path, shape) {
                Ok(None) => make(root, path, shape),
                Ok(Some(made)) => Ok(made),
                Err(errno) => Err(errno),
            };
            made.during(|| format!("create {path:?} in the container"))
        }
        result => result.during(|| format!("open {path:?} in the container")),
    }
}

/// The frequent case: only the last component is missing, and it is a directory. `None`: it is another case.
fn make_last(root: BorrowedFd<'_>, path: &CStr, shape: Shape) -> Result<Option<OwnedFd>, Errno> {
    let Some(at) = path.to_bytes().iter().rposition(|byte| *byte == b'/') else { return Ok(None) };
    let (parent, name) = (&path.to_bytes()[..at], &path.to_bytes()[at + 1..]);
    if shape != Shape::Directory || parent.is_empty() || matches!(name, b"" | b"." | b"..") {
        return Ok(None);
    }
    let Ok(parent) = CString::new(parent) else { return Ok(None) };
    let here = match find(root, &parent) {
        Err(Errno::NOENT) => return Ok(None),
        result => result?,
    };
    match mkdirat(&here, name, Mode::from_raw_mode(0o755)) {
        // Never through a symlink that somebody put there since.
        Ok(()) => openat(&here, name, WALK | OFlags::DIRECTORY, Mode::empty()).map(Some),
        Err(Errno::EXIST) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// Walks component by component, each opened without following symlinks from the directory before it; a symlink's
/// target takes the place of its name, and an absolute one or a `..` never leaves the root.
fn make(root: BorrowedFd<'_>, path: &CStr, shape: Shape) -> Result<OwnedFd, Errno> {
    let mut rest: Vec<Vec<u8>> = components(path.to_bytes()).rev().map(<[u8]>::to_vec).collect();
    let mut way: Vec<OwnedFd> = Vec::new();
    let mut symlinks = 0;
    while let Some(name) = rest.pop() {
        if name == b".." {
            way.pop();
            continue;
        }
        let here = way.last().map_or(root, AsFd::as_fd);
        let shape = if rest.is_empty() { shape } else { Shape::Directory };
        let fd = open_or_make(here, &name, shape)?;
        if FileType::from_raw_mode(fstat(&fd)?.st_mode) != FileType::Symlink {
            way.push(fd);
            continue;
        }
        symlinks += 1;
        if symlinks > SYMLINKS_MAX {
            return Err(Errno::LOOP);
        }
        let target = readlinkat(&fd, c"", Vec::new())?;
        if target.to_bytes().starts_with(b"/") {
            way.clear();
        }
        rest.extend(components(target.to_bytes()).rev().map(<[u8]>::to_vec));
    }
    match way.pop() {
        Some(fd) => Ok(fd),
        None => openat(root, c".", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()),
    }
}

fn components(path: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".")
}

fn open_or_make(here: BorrowedFd<'_>, name: &[u8], shape: Shape) -> Result<OwnedFd, Errno> {
    match openat(here, name, WALK, Mode::empty()) {
        Err(Errno::NOENT) => {}
        result => return result,
    }
    let made = match shape {
        Shape::Directory => mkdirat(here, name, Mode::from_raw_mode(0o755)),
        Shape::File => {
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            openat(here, name, flags, Mode::from_raw_mode(0o644)).map(drop)
        }
    };
    match made {
        // Another container on the same volume was quicker.
        Ok(()) | Err(Errno::EXIST) => openat(here, name, WALK, Mode::empty()),
        Err(errno) => Err(errno),
    }
}
