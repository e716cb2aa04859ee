//! The file of a module in the root file system of an image.

use std::{
    fs::File,
    io::{Read, Seek},
    os::unix::fs::FileExt,
    path::Path,
};

use image::Digest;
use rustix::{
    fd::OwnedFd,
    fs::{FileType, Mode, OFlags, ResolveFlags, fstat, openat2},
    io::Errno,
};

use crate::{Error, error::failed};

/// First bytes of a WebAssembly binary.
const MAGIC: &[u8; 4] = b"\0asm";

/// An open module.
pub(crate) struct ModuleFile(File);

impl ModuleFile {
    /// Opens a file of the root; `None` if it does not exist, or is not a module. Blocks.
    ///
    /// # Errors
    /// `InvalidArgument`: it is larger than `size_max` bytes.
    pub(super) fn open(root: &OwnedFd, path: &Path, size_max: u64) -> Result<Option<Self>, Error> {
        let error = format!("open {} of the image", path.display());
        let file = match open_in_root(root, path) {
            Ok(file) => file,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS | Errno::NXIO) => return Ok(None),
            Err(errno) => return Err(failed(error)(errno)),
        };
        let stat = fstat(&file).map_err(failed(&error))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Ok(None);
        }
        let file = File::from(file);
        let mut head = [0; MAGIC.len()];
        match file.read_exact_at(&mut head, 0) {
            Ok(()) if head == *MAGIC => {}
            Ok(()) => return Ok(None),
            Err(cause) if cause.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(cause) => return Err(failed(error)(cause)),
        }
        match u64::try_from(stat.st_size).is_ok_and(|size| size <= size_max) {
            true => Ok(Some(Self(file))),
            false => Err(Error::invalid(format!(
                "{error}: a module of {} bytes, at most {size_max} are accepted",
                stat.st_size
            ))),
        }
    }

    /// Computes the digest of the module. Blocks.
    pub(super) fn digest(&self) -> Result<Digest, Error> {
        let mut file = &self.0;
        let digest = file.rewind().and_then(|()| Digest::of_reader(file.by_ref()));
        let digest = digest.and_then(|digest| file.rewind().map(|()| digest));
        digest.map_err(failed("read the module"))
    }

    /// Returns the file, whose offset is its beginning.
    pub(super) fn into_file(self) -> File {
        self.0
    }
}

fn open_in_root(root: &OwnedFd, path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    loop {
        match openat2(root, path, flags, Mode::empty(), ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            result => return result,
        }
    }
}
