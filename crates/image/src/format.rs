//! Versions of the on-disk formats of a store, which can be read while another process has the store open.
//!
//! `<root>/format` holds the version of the index's records as a decimal number and a newline. The version of redb's
//! file format is in the commit slots of `index.redb`'s header (redb, `docs/design.md`).

use std::{
    fs::{self, File},
    io::{ErrorKind, Read},
    path::Path,
};

use crate::{Error, durable, error::failed_to};

/// Versions of a store's formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskFormat {
    /// Version of the tables and records of the index.
    pub index: u32,
    /// Version of redb's file format.
    pub redb: u8,
}

/// Name of the file under the store's root.
const FILE: &str = "format";
/// Magic number of a redb file.
const MAGIC: &[u8] = b"redb\x1A\x0A\xA9\x0D\x0A";
/// Offset of the byte whose lowest bit is the number of the primary commit slot.
const PRIMARY: usize = 9;
/// Offset of the first commit slot, and the size of each; a slot begins with the version.
const SLOT: (usize, usize) = (64, 128);

impl DiskFormat {
    /// The format that this program writes.
    pub const CURRENT: Self = Self { index: 2, redb: 3 };

    /// Whether this program can open a store of this format.
    #[must_use]
    pub fn is_supported(self) -> bool {
        (1..=Self::CURRENT.index).contains(&self.index) && self.redb == Self::CURRENT.redb
    }

    /// Reads the format of the store under `root`. Returns `None` if there is no store, or if its index is damaged and
    /// will be rebuilt. Opens nothing for writing and takes no lock.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn read(root: &Path) -> Result<Option<Self>, Error> {
        let path = root.join("index.redb");
        let mut header = Vec::new();
        match File::open(&path) {
            Ok(file) => file.take(512).read_to_end(&mut header).map_err(failed_to("read", &path))?,
            Err(cause) if cause.kind() == ErrorKind::NotFound => return Ok(None),
            Err(cause) => return Err(failed_to("open", &path)(cause)),
        };
        if !header.starts_with(MAGIC) || header.len() < SLOT.0 + 2 * SLOT.1 {
            return Ok(None);
        }
        let redb = header[SLOT.0 + usize::from(header[PRIMARY] & 1) * SLOT.1];
        let path = root.join(FILE);
        let index = match fs::read_to_string(&path) {
            Ok(text) => text.trim().parse().map_err(failed_to("read the version in", &path))?,
            // Version 1 did not write this file.
            Err(cause) if cause.kind() == ErrorKind::NotFound => 1,
            Err(cause) => return Err(failed_to("read", &path)(cause)),
        };
        Ok(Some(Self { index, redb }))
    }

    /// Writes the version of the index that was opened under `root` to the file `format`.
    pub(crate) fn write(root: &Path) -> Result<(), Error> {
        let (path, text) = (root.join(FILE), format!("{}\n", Self::CURRENT.index));
        match fs::read_to_string(&path) {
            Ok(known) if known == text => Ok(()),
            _ => durable::replace(&path, text.as_bytes()),
        }
    }
}
