//! Entries of a tar archive: a kind of file, its metadata, and where its body is.

/// Size of a tar block.
pub(crate) const BLOCK: u64 = 512;

/// The type of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    Directory,
    Symlink,
    HardLink,
    CharDevice,
    BlockDevice,
    Fifo,
}

/// Metadata that every kind of file has.
#[derive(Clone, Debug, Default)]
pub(crate) struct Meta {
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Seconds and nanoseconds.
    pub(crate) mtime: (i64, u32),
    /// Extended attributes, only those that may be set.
    pub(crate) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Meta {
    /// Returns the memory of its extended attributes, in bytes.
    pub(crate) fn xattr_bytes(&self) -> usize {
        self.xattrs.iter().map(|(name, value)| name.len() + value.len() + 2 * size_of::<Vec<u8>>()).sum()
    }
}

/// An entry, whose body follows in the stream.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) path: Vec<u8>,
    pub(crate) kind: Kind,
    pub(crate) meta: Meta,
    pub(crate) link: Vec<u8>,
    pub(crate) device: (u32, u32),
    /// Size of the body in the archive, in bytes.
    pub(crate) stored: u64,
    /// Full size of a sparse file, and offsets and lengths of its data.
    pub(crate) sparse: Option<(u64, Vec<(u64, u64)>)>,
}
