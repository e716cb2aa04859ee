//! Whiteouts: the marker files of the image format are converted to those of overlayfs.
//!
//! OCI image spec, layer: `.wh.<name>` hides `<name>` of lower layers, `.wh..wh..opq` everything that lower layers have
//! in that directory. Overlayfs: a character device 0:0, and the attribute `trusted.overlay.opaque` = `y`. Both apply
//! to lower layers only, wherever they are in the archive: the files of this layer stay.

use rustix::{
    fd::OwnedFd,
    fs::{FileType, Mode, OFlags, XattrFlags},
    io::Errno,
};

use super::tree::{Tree, kind_at, path_error};
use crate::Error;

/// The meaning of the last component of an entry's path.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Marker<'a> {
    /// An ordinary file.
    None,
    /// Hides the file of this name in lower layers.
    Hide(&'a [u8]),
    /// Hides everything that lower layers have in the directory.
    Opaque,
    /// Bookkeeping of AUFS (`.wh..wh.plnk`, …), which is ignored.
    Ignored,
}

pub(crate) fn marker(name: &[u8]) -> Marker<'_> {
    match name.strip_prefix(b".wh.") {
        None => Marker::None,
        Some(b".wh..opq") => Marker::Opaque,
        Some(hidden) if hidden.starts_with(b".wh.") => Marker::Ignored,
        Some(b"" | b"." | b"..") => Marker::Ignored,
        Some(hidden) => Marker::Hide(hidden),
    }
}

/// Whether this is overlayfs's whiteout.
pub(crate) fn is_whiteout((kind, device): (FileType, u64)) -> bool {
    kind == FileType::CharacterDevice && device == 0
}

pub(crate) fn hide(tree: &mut Tree, directory: &[u8], name: &[u8]) -> Result<(), Error> {
    let parent = tree.directory(directory)?;
    match rustix::fs::mknodat(&*parent, name, FileType::CharacterDevice, Mode::empty(), 0) {
        Ok(()) => Ok(()),
        Err(Errno::EXIST) => match kind_at(&parent, name) {
            Ok((FileType::Directory, _)) => mark_opaque(
                &open_directory(&parent, name).map_err(|cause| path_error(name, "open directory", cause))?,
                name,
            ),
            _ => Ok(()), // a file of this layer hides those of lower layers anyway
        },
        Err(cause) => Err(path_error(name, "create its whiteout", cause)),
    }
}

/// Opens a directory for reading, because attributes cannot be set through an `O_PATH` descriptor.
pub(crate) fn open_directory(parent: &OwnedFd, name: &[u8]) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(parent, if name.is_empty() { b"." } else { name }, flags, Mode::empty())
}

pub(crate) fn mark_opaque(directory: &OwnedFd, path: &[u8]) -> Result<(), Error> {
    rustix::fs::fsetxattr(directory, "trusted.overlay.opaque", b"y", XattrFlags::empty())
        .map_err(|cause| path_error(path, "mark it opaque", cause))
}

#[cfg(test)]
mod tests {
    use super::{Marker, marker};

    #[test]
    fn markers() {
        assert_eq!(marker(b"a"), Marker::None);
        assert_eq!(marker(b".wh.a"), Marker::Hide(b"a"));
        assert_eq!(marker(b".wh..wh..opq"), Marker::Opaque);
        assert_eq!(marker(b".wh..wh.plnk"), Marker::Ignored);
        assert_eq!(marker(b".wh."), Marker::Ignored);
        assert_eq!(marker(b".wh..."), Marker::Ignored, "it would be the parent directory");
    }
}
