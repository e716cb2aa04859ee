//! Creation of the file of one archive entry.

use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags},
    io::Errno,
};

use super::{
    Unpacker, attributes, display_path,
    tar_entry::{Entry, Kind, Meta},
    tree::{kind_at, normalize, path_error, split},
    whiteout::{self, Marker},
};
use crate::Error;

/// Mode of a directory until the end, so that files can be created in it.
const FILLING: u32 = 0o700;

impl Unpacker {
    pub(super) fn apply(&mut self, path: &[u8], entry: &Entry) -> Result<(), Error> {
        let (directory, name) = split(path);
        match whiteout::marker(name) {
            Marker::None => {}
            other => {
                match other {
                    Marker::Hide(hidden) => whiteout::hide(&mut self.tree, directory, hidden)?,
                    Marker::Opaque => self.mark_opaque(directory)?,
                    Marker::Ignored | Marker::None => {}
                }
                return self.skip_body(entry);
            }
        }
        if path.is_empty() {
            return match entry.kind {
                Kind::Directory => self.remember(b"", &entry.meta),
                _ => Err(Error::invalid(format!(
                    "{:?}: the layer's root is not a directory",
                    String::from_utf8_lossy(&entry.path)
                ))),
            };
        }
        let implied = self.tree.implied.len();
        let parent = self.tree.directory(directory)?;
        // The implied directories that were created have paths of at most this length.
        for _ in implied..self.tree.implied.len() {
            self.charge_directory(directory.len())?;
        }
        match entry.kind {
            Kind::File => self.file(&parent, path, entry),
            Kind::Directory => self.directory(&parent, path, &entry.meta),
            Kind::HardLink => self.hard_link(&parent, path, &entry.link),
            Kind::Symlink => {
                let link = entry.link.as_slice();
                self.replacing(&parent, path, |parent, name| rustix::fs::symlinkat(link, parent, name))?;
                attributes::set_at(&parent, name, path, entry.kind, &entry.meta)
            }
            Kind::CharDevice => self.node(&parent, path, FileType::CharacterDevice, entry),
            Kind::BlockDevice => self.node(&parent, path, FileType::BlockDevice, entry),
            Kind::Fifo => self.node(&parent, path, FileType::Fifo, entry),
        }
    }

    /// Creates a file with `make`, and replaces what an earlier entry created under its name.
    pub(super) fn replacing<T>(
        &mut self,
        parent: &OwnedFd,
        path: &[u8],
        make: impl Fn(&OwnedFd, &[u8]) -> rustix::io::Result<T>,
    ) -> Result<T, Error> {
        let name = split(path).1;
        let result = match make(parent, name) {
            Err(Errno::EXIST) => {
                if self.tree.clear(parent, name).map_err(|cause| path_error(path, "replace it", cause))? {
                    self.forget(path);
                }
                make(parent, name)
            }
            other => other,
        };
        result.map_err(|cause| path_error(path, "create", cause))
    }

    /// Drops the recorded attributes of directories at or below a path that is not a directory any longer.
    fn forget(&mut self, path: &[u8]) {
        self.directories.remove(path);
        self.tree.implied.remove(path);
        // The byte after `/` is `0`.
        let below = [path, b"/"].concat()..[path, b"0"].concat();
        let directories: Vec<Vec<u8>> =
            self.directories.range(below.clone()).map(|(directory, _)| directory.clone()).collect();
        directories.iter().for_each(|directory| drop(self.directories.remove(directory)));
        let implied: Vec<Vec<u8>> = self.tree.implied.range(below).cloned().collect();
        for directory in implied {
            self.tree.implied.remove(&directory);
        }
    }

    fn directory(&mut self, parent: &OwnedFd, path: &[u8], meta: &Meta) -> Result<(), Error> {
        let name = split(path).1;
        match rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(FILLING)) {
            Ok(()) => {}
            Err(Errno::EXIST) => {
                let kind = kind_at(parent, name).map_err(|cause| path_error(path, "stat", cause))?;
                if kind.0 != FileType::Directory {
                    self.replacing(parent, path, |parent, name| {
                        rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(FILLING))
                    })?;
                }
                if whiteout::is_whiteout(kind) {
                    // The whiteout hides the directory of lower layers, and the new directory must still do so.
                    let new =
                        whiteout::open_directory(parent, name).map_err(|cause| path_error(path, "open", cause))?;
                    whiteout::mark_opaque(&new, path)?;
                }
            }
            Err(cause) => return Err(path_error(path, "create the directory", cause)),
        }
        self.tree.implied.remove(path);
        self.remember(path, meta)
    }

    fn mark_opaque(&mut self, directory: &[u8]) -> Result<(), Error> {
        let fd = self.tree.directory(directory)?;
        let fd = whiteout::open_directory(&fd, b"").map_err(|cause| path_error(directory, "open", cause))?;
        whiteout::mark_opaque(&fd, directory)
    }

    /// Creates a hard link, both ends of which are resolved beneath the root. A link to a file that is not from the
    /// archive is an error.
    fn hard_link(&mut self, parent: &OwnedFd, path: &[u8], link: &[u8]) -> Result<(), Error> {
        let target = normalize(link).map_err(|error| error.during(format!("hard link {}", display_path(path))))?;
        if target == path {
            return Ok(());
        }
        let (directory, name) = split(&target);
        if name.is_empty() {
            return Err(Error::invalid(format!("{}: a hard link to the root", display_path(path))));
        }
        let from = self.tree.directory(directory)?;
        let result =
            self.replacing(parent, path, |parent, new| rustix::fs::linkat(&*from, name, parent, new, AtFlags::empty()));
        result.map_err(|mut error| {
            error.kind = crate::ErrorKind::Invalid;
            error.during(format!("hard link to {}", display_path(&target)))
        })
    }

    fn node(&mut self, parent: &OwnedFd, path: &[u8], kind: FileType, entry: &Entry) -> Result<(), Error> {
        let device = rustix::fs::makedev(entry.device.0, entry.device.1);
        let mode = Mode::from_raw_mode(entry.meta.mode);
        self.replacing(parent, path, |parent, name| rustix::fs::mknodat(parent, name, kind, mode, device))?;
        attributes::set_at(parent, split(path).1, path, entry.kind, &entry.meta)
    }

    pub(super) fn finish_directory(&mut self, path: &[u8], meta: &Meta) -> Result<(), Error> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let at = if path.is_empty() { b"." } else { path };
        match rustix::fs::openat2(self.tree.root(), at, flags, Mode::empty(), resolve) {
            Ok(fd) => attributes::set(fd.as_fd(), path, meta, u32::MAX),
            Err(cause) => Err(path_error(path, "open the directory", cause)),
        }
    }
}
