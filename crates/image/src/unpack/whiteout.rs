//! Whiteouts: from the image format's marker files to what overlayfs reads.
//!
//! OCI image spec, layer: `.wh.<name>` hides `<name>` of lower layers, `.wh..wh..opq` all that lower layers have in
//! that directory. Overlayfs: a character device 0:0, and the attribute `trusted.overlay.opaque` = `y`. Both speak of
//! lower layers only, wherever they stand in the archive: what this layer itself has stays.

use rustix::{
    fd::OwnedFd,
    fs::{FileType, Mode, OFlags, XattrFlags},
    io::Errno,
};

use super::tree::{Tree, kind_at, wrong};
use crate::Error;

/// What the last name of an entry says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Marker<'a> {
    /// An ordinary file.
    None,
    /// Lower layers' file of this name is hidden.
    Hide(&'a [u8]),
    /// Lower layers' whole directory is hidden.
    Opaque,
    /// Bookkeeping of AUFS (`.wh..wh.plnk`, …): of no meaning.
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
            Ok((FileType::Directory, _)) => {
                opaque(&open_directory(&parent, name).map_err(|cause| wrong(name, "open directory", cause))?, name)
            }
            _ => Ok(()), // the layer has a file of its own there, which hides lower ones anyway
        },
        Err(cause) => Err(wrong(name, "make its whiteout", cause)),
    }
}

/// A directory, for reading: attributes can't be set through an `O_PATH` descriptor.
pub(crate) fn open_directory(parent: &OwnedFd, name: &[u8]) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(parent, if name.is_empty() { b"." } else { name }, flags, Mode::empty())
}

pub(crate) fn opaque(directory: &OwnedFd, path: &[u8]) -> Result<(), Error> {
    rustix::fs::fsetxattr(directory, "trusted.overlay.opaque", b"y", XattrFlags::empty())
        .map_err(|cause| wrong(path, "mark it opaque", cause))
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
        assert_eq!(marker(b".wh..."), Marker::Ignored, "it would name the directory above");
    }
}
