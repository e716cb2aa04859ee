//! Paths inside the container's root: resolved by the kernel with `RESOLVE_IN_ROOT`, used by descriptor, and created
//! where they are missing.

use std::ffi::{CStr, CString};

use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{FileType, Mode, OFlags, ResolveFlags, fstat, mkdirat, openat, openat2, readlinkat},
    io::Errno,
};

use crate::{Error, error::During};

/// Maximum number of symlinks in one path, as in the kernel.
const SYMLINKS_MAX: usize = 40;

/// File type of the last component of a path that is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Directory,
    File,
}

const WALK: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Opens `path` inside `root` with `O_PATH`.
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

/// Opens `path` inside `root`, creating missing components (directories 0755, file 0644).
pub(crate) fn find_or_make(root: BorrowedFd<'_>, path: &CStr, shape: Shape) -> Result<OwnedFd, Error> {
    match find(root, path) {
        Err(Errno::NOENT) => {
            let created = match create_last(root, path, shape) {
                Ok(None) => create(root, path, shape),
                Ok(Some(created)) => Ok(created),
                Err(errno) => Err(errno),
            };
            created.during(|| format!("create {path:?} in the container"))
        }
        result => result.during(|| format!("open {path:?} in the container")),
    }
}

/// Creates the last component in the frequent case that only it is missing and is a directory. `None`: it is another
/// case.
fn create_last(root: BorrowedFd<'_>, path: &CStr, shape: Shape) -> Result<Option<OwnedFd>, Errno> {
    let Some(slash) = path.to_bytes().iter().rposition(|byte| *byte == b'/') else { return Ok(None) };
    let (parent, name) = (&path.to_bytes()[..slash], &path.to_bytes()[slash + 1..]);
    if shape != Shape::Directory || parent.is_empty() || matches!(name, b"" | b"." | b"..") {
        return Ok(None);
    }
    let Ok(parent) = CString::new(parent) else { return Ok(None) };
    let parent = match find(root, &parent) {
        Err(Errno::NOENT) => return Ok(None),
        result => result?,
    };
    match mkdirat(&parent, name, Mode::from_raw_mode(0o755)) {
        // Do not follow a symlink that another process may have put there since.
        Ok(()) => openat(&parent, name, WALK | OFlags::DIRECTORY, Mode::empty()).map(Some),
        Err(Errno::EXIST) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// Walks the path component by component and opens each from the directory before it, without following symlinks. A
/// symlink is replaced by its target; an absolute target and `..` stay inside the root.
fn create(root: BorrowedFd<'_>, path: &CStr, shape: Shape) -> Result<OwnedFd, Errno> {
    let mut rest: Vec<Vec<u8>> = components(path.to_bytes()).rev().map(<[u8]>::to_vec).collect();
    let mut opened: Vec<OwnedFd> = Vec::new();
    let mut symlinks = 0;
    while let Some(name) = rest.pop() {
        if name == b".." {
            opened.pop();
            continue;
        }
        let directory = opened.last().map_or(root, AsFd::as_fd);
        let shape = if rest.is_empty() { shape } else { Shape::Directory };
        let fd = open_or_create(directory, &name, shape)?;
        if FileType::from_raw_mode(fstat(&fd)?.st_mode) != FileType::Symlink {
            opened.push(fd);
            continue;
        }
        symlinks += 1;
        if symlinks > SYMLINKS_MAX {
            return Err(Errno::LOOP);
        }
        let target = readlinkat(&fd, c"", Vec::new())?;
        if target.to_bytes().starts_with(b"/") {
            opened.clear();
        }
        rest.extend(components(target.to_bytes()).rev().map(<[u8]>::to_vec));
    }
    match opened.pop() {
        Some(fd) => Ok(fd),
        None => openat(root, c".", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()),
    }
}

fn components(path: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".")
}

fn open_or_create(directory: BorrowedFd<'_>, name: &[u8], shape: Shape) -> Result<OwnedFd, Errno> {
    match openat(directory, name, WALK, Mode::empty()) {
        Err(Errno::NOENT) => {}
        result => return result,
    }
    let created = match shape {
        Shape::Directory => mkdirat(directory, name, Mode::from_raw_mode(0o755)),
        Shape::File => {
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            openat(directory, name, flags, Mode::from_raw_mode(0o644)).map(drop)
        }
    };
    match created {
        // Another container on the same volume may have created it first.
        Ok(()) | Err(Errno::EXIST) => openat(directory, name, WALK, Mode::empty()),
        Err(errno) => Err(errno),
    }
}
