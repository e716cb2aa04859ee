//! The directory into which a layer is unpacked: untrusted paths are resolved beneath it, by descriptors.
//!
//! No path of the archive is passed to the kernel as it is. Its directory part is opened with
//! `openat2(RESOLVE_IN_ROOT)` relative to the layer's root, so that neither `..`, nor an absolute path, nor a symlink
//! of the archive leads out of it. Everything else is done relative to that descriptor, on the last component, which is
//! not followed.

use std::{
    collections::{BTreeSet, HashMap},
    ffi::CString,
    os::unix::ffi::OsStrExt,
    path::Path,
    rc::Rc,
};

use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags},
    io::Errno,
};
use syscall::directory_tree;

use crate::Error;

/// Longest path, which is the kernel's limit.
const PATH_MAX: usize = 4096;
/// Longest name of a file.
const NAME_MAX: usize = 255;
/// Directories that are kept open per layer. Archives are ordered depth first, so few suffice.
const OPEN_MAX: usize = 64;
/// Symlinks followed on the way to an entry's directory.
const LINKS_MAX: u32 = 40;
/// Deepest directory of a layer, after symlinks are resolved.
const DEPTH_MAX: usize = 1000;

/// Directories that may be opened to count depths in one layer, which takes about ten seconds.
const STEPS_MAX: u64 = 10_000_000;

const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// The root of a layer being unpacked.
pub(crate) struct Tree {
    root: Rc<OwnedFd>,
    open: HashMap<Vec<u8>, OpenDirectory>,
    /// Directories that contain entries but have no entry themselves.
    pub(crate) implied: BTreeSet<Vec<u8>>,
    /// Number of directories that were opened to count depths.
    steps: u64,
}

/// An open directory and its real depth below the root.
#[derive(Clone)]
struct OpenDirectory {
    directory: Rc<OwnedFd>,
    depth: usize,
}

pub(crate) fn show(path: &[u8]) -> String {
    let printable = String::from_utf8_lossy(&path[..path.len().min(300)]);
    printable.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// Normalizes a path of an archive: removes `.`, `..`, doubled and leading slashes; the root is empty. Fails where `..`
/// leaves the root.
pub(crate) fn normalize(path: &[u8]) -> Result<Vec<u8>, Error> {
    if path.len() > PATH_MAX {
        return Err(Error::invalid(format!("{}…: the path is longer than {PATH_MAX} bytes", show(path))));
    }
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in path.split(|b| *b == b'/') {
        match part {
            b"" | b"." => {}
            b".." if parts.pop().is_some() => {}
            b".." => return Err(Error::invalid(format!("{}: the path leads out of the layer", show(path)))),
            part if part.len() > NAME_MAX || part.contains(&0) => {
                return Err(Error::invalid(format!("{}: a name in the path is not valid", show(path))));
            }
            part => parts.push(part),
        }
    }
    match parts.len() > DEPTH_MAX {
        true => Err(Error::invalid(format!("{}: deeper than {DEPTH_MAX} directories", show(path)))),
        false => Ok(parts.join(&b'/')),
    }
}

/// Splits a normalized path into its directory and its last component.
pub(crate) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|b| *b == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (&[], path),
    }
}

impl Tree {
    pub(crate) fn new(root: OwnedFd) -> Self {
        Self { root: Rc::new(root), open: HashMap::new(), implied: BTreeSet::new(), steps: 0 }
    }

    pub(crate) fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// Returns the directory at a normalized path, and creates it and its parents if they are missing.
    pub(crate) fn directory(&mut self, path: &[u8]) -> Result<Rc<OwnedFd>, Error> {
        self.directory_through(path, LINKS_MAX).map(|opened| opened.directory)
    }

    fn directory_through(&mut self, path: &[u8], links: u32) -> Result<OpenDirectory, Error> {
        if path.is_empty() {
            return Ok(OpenDirectory { directory: self.root.clone(), depth: 0 });
        }
        if let Some(opened) = self.open.get(path) {
            return Ok(opened.clone());
        }
        let opened = match self.open_existing(path) {
            Ok(Some(opened)) => opened,
            Ok(None) => self.make_implied(path, links)?,
            Err(cause) => return Err(path_error(path, "open its directory", cause)),
        };
        // Chained symlinks can make a tree deeper than any path of the archive.
        if opened.depth > DEPTH_MAX {
            return Err(Error::invalid(format!("{}: deeper than {DEPTH_MAX} directories", show(path))));
        }
        if self.open.len() >= OPEN_MAX {
            self.open.clear();
        }
        self.open.insert(path.to_vec(), opened.clone());
        Ok(opened)
    }

    /// Opens an existing directory, through symlinks of the archive if necessary.
    fn open_existing(&mut self, path: &[u8]) -> rustix::io::Result<Option<OpenDirectory>> {
        let plain = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        let depth = path.iter().filter(|byte| **byte == b'/').count() + 1;
        match rustix::fs::openat2(&*self.root, path, DIRECTORY, Mode::empty(), plain) {
            Ok(fd) => return Ok(Some(OpenDirectory { directory: Rc::new(fd), depth })),
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP) => {}
            Err(cause) => return Err(cause),
        }
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
        match rustix::fs::openat2(&*self.root, path, DIRECTORY, Mode::empty(), resolve) {
            Ok(fd) => Ok(Some(OpenDirectory { depth: self.depth(&fd)?, directory: Rc::new(fd) })),
            Err(Errno::NOENT) => Ok(None),
            Err(cause) => Err(cause),
        }
    }

    /// Counts the directories between `directory` and the root, at most one more than is allowed. Returns
    /// [`Errno::LOOP`] after too many steps: an archive could alternate between paths through symlinks to deep
    /// directories, so that each entry opens a thousand of them.
    fn depth(&mut self, directory: &OwnedFd) -> rustix::io::Result<usize> {
        let identity = |fd: &OwnedFd| rustix::fs::fstat(fd).map(|stat| (stat.st_dev, stat.st_ino));
        let root = identity(&self.root)?;
        let mut above = rustix::fs::openat(directory, c".", DIRECTORY, Mode::empty())?;
        for depth in 0..=DEPTH_MAX {
            if identity(&above)? == root {
                return Ok(depth);
            }
            self.steps += 1;
            if self.steps > STEPS_MAX {
                return Err(Errno::LOOP);
            }
            above = rustix::fs::openat(&above, c"..", DIRECTORY, Mode::empty())?;
        }
        Ok(DEPTH_MAX + 1)
    }

    fn make_implied(&mut self, path: &[u8], links: u32) -> Result<OpenDirectory, Error> {
        let (above, name) = split(path);
        let OpenDirectory { directory: parent, depth } = self.directory_through(above, links)?;
        match rustix::fs::mkdirat(&*parent, name, Mode::from_raw_mode(0o755)) {
            Ok(()) => {
                self.implied.insert(path.to_vec());
                let fd = rustix::fs::openat(&*parent, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty());
                let fd = fd.map_err(|cause| path_error(path, "open the new directory", cause))?;
                Ok(OpenDirectory { directory: Rc::new(fd), depth: depth + 1 })
            }
            // A symlink to a directory that exists only in a lower layer: the entry belongs to the directory it refers
            // to.
            Err(Errno::EXIST) if links > 0 => {
                let target = rustix::fs::readlinkat(&*parent, name, Vec::new());
                let target = target.map_err(|cause| path_error(path, "read the symlink in its path", cause))?;
                let target = link_target(above, target.as_bytes())?;
                self.directory_through(&target, links - 1)
            }
            Err(cause) => Err(path_error(path, "create its directory", cause)),
        }
    }

    /// Removes the file or directory tree `name`. Returns whether paths may have been resolved through it: then the
    /// cached open directories are dropped, because they may not exist anymore.
    pub(crate) fn clear(&mut self, parent: &OwnedFd, name: &[u8]) -> rustix::io::Result<bool> {
        let was_traversable = matches!(kind_at(parent, name)?.0, FileType::Directory | FileType::Symlink);
        if was_traversable {
            self.open.clear();
        }
        directory_tree::remove(parent.as_fd(), &CString::new(name).map_err(|_| Errno::INVAL)?)?;
        Ok(was_traversable)
    }
}

/// Returns the target of a symlink in `directory`, inside the root: the root is its own parent.
fn link_target(directory: &[u8], target: &[u8]) -> Result<Vec<u8>, Error> {
    let base: &[u8] = if target.starts_with(b"/") { b"" } else { directory };
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in base.split(|b| *b == b'/').chain(target.split(|b| *b == b'/')) {
        match part {
            b"" | b"." => {}
            b".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    normalize(&parts.join(&b'/'))
}

pub(crate) fn path_error(path: &[u8], operation: &str, cause: Errno) -> Error {
    let message = format!("{}: {operation}: {cause}", show(path));
    match cause {
        Errno::LOOP | Errno::NOTDIR | Errno::NAMETOOLONG | Errno::XDEV | Errno::ISDIR | Errno::INVAL | Errno::FBIG => {
            Error::invalid(message)
        }
        _ => Error::system(message),
    }
}

/// Removes a file, or a directory with everything below it. `path` must be our own, not one of an archive. Succeeds if
/// it does not exist.
///
/// # Errors
/// As [`directory_tree::remove`].
pub(crate) fn remove_path(path: &Path) -> rustix::io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes()).map_err(|_| Errno::INVAL)?;
    directory_tree::remove(rustix::fs::CWD, &path)
}

/// Returns the type and the device number of `name`, which is not followed.
pub(crate) fn kind_at(parent: &OwnedFd, name: &[u8]) -> rustix::io::Result<(FileType, u64)> {
    let stat = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok((FileType::from_raw_mode(stat.st_mode), stat.st_rdev))
}

#[cfg(test)]
mod tests {
    use rustix::{
        fs::{Mode, OFlags},
        io::Errno,
    };

    use super::{STEPS_MAX, Tree, link_target, normalize};

    #[test]
    fn counting_depths_is_bounded() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("a/b/c")).unwrap();
        std::os::unix::fs::symlink("a/b/c", dir.path().join("l")).unwrap();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut tree = Tree::new(rustix::fs::open(dir.path(), flags, Mode::empty()).unwrap());
        assert_eq!(tree.open_existing(b"l").unwrap().unwrap().depth, 3);
        assert_eq!(tree.steps, 3);
        tree.steps = STEPS_MAX - 1;
        assert_eq!(tree.open_existing(b"l").err(), Some(Errno::LOOP));
    }

    #[test]
    fn paths_stay_in_the_layer() {
        assert_eq!(normalize(b"./a//b/./c/").unwrap(), b"a/b/c");
        assert_eq!(normalize(b"/etc/passwd").unwrap(), b"etc/passwd");
        assert_eq!(normalize(b"a/../b").unwrap(), b"b");
        assert_eq!(normalize(b"./").unwrap(), b"");
        for path in [&b".."[..], b"../a", b"a/../../b", b"/..", &[b'a'; 256], b"a\0b"] {
            assert!(normalize(path).is_err(), "{}", String::from_utf8_lossy(path));
        }
        assert!(normalize(&b"a/".repeat(3000)).is_err());
    }

    #[test]
    fn link_targets_stay_in_the_root() {
        assert_eq!(link_target(b"a/b", b"../../../../etc").unwrap(), b"etc");
        assert_eq!(link_target(b"a/b", b"/usr/lib").unwrap(), b"usr/lib");
        assert_eq!(link_target(b"", b"usr/lib").unwrap(), b"usr/lib");
    }
}
