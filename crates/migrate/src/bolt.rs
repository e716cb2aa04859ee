//! Reads a bolt database (go.etcd.io/bbolt), the format of containerd's `meta.db`, while its owner may write to it.
//!
//! ```text
//! page:    id u64, flags u16, count u16, overflow u32, then `count` elements, then keys and values
//! meta:    magic, version, page size, flags, root page, …, transaction, FNV-1a of all before (pages 0 and 1)
//! branch:  position u32, length of key u32, page u64
//! leaf:    flags u32 (1: a bucket), position u32, length of key u32, length of value u32
//! bucket:  root page u64, sequence u64; root 0: the page follows inline
//! ```
//!
//! A writer never changes a page that the last committed transaction refers to before it has committed another one. So
//! what was read is consistent if the newest transaction is still the same afterwards ([`Database::is_unchanged`]).
//! Integers are in the byte order of the machine.

use std::{
    cell::Cell,
    fs::File,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use crate::{Error, file};

const MAGIC: u32 = 0xED0C_DAED;
const VERSION: u32 = 2;
const BRANCH: u16 = 1;
const LEAF: u16 = 2;
const BUCKET: u32 = 1;
const HEADER: usize = 16;
const ELEMENT: usize = 16;
const META: usize = 64;
const PAGE_SIZES: std::ops::RangeInclusive<u32> = 512..=65_536;
/// The largest node, in bytes.
const NODE_MAX: u64 = 64 << 20;
/// Deepest tree of pages.
const DEPTH_MAX: u32 = 32;
/// Most bytes that are read from one database, and copied out of it; a loop of pages ends here.
const BYTES_MAX: u64 = 1 << 30;
/// Most entries of one bucket.
const ENTRIES_MAX: usize = 1_000_000;

/// An open database.
#[derive(Debug)]
pub(crate) struct Database {
    file: File,
    path: PathBuf,
    meta: Meta,
    bytes: Cell<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Meta {
    page_size: u64,
    root: u64,
    transaction: u64,
}

/// A bucket: a tree of pages, or one page inline.
#[derive(Clone, Debug)]
pub(crate) struct Bucket {
    root: u64,
    inline: Vec<u8>,
}

/// The value of a key.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Data(Vec<u8>),
    Bucket(Bucket),
}

/// The entries of a bucket, in the order of their keys.
pub(crate) type Entries = Vec<(Vec<u8>, Value)>;

impl Database {
    /// Opens a database.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let file = file::open(path)?;
        let meta = newest(&file).ok_or_else(|| Error::invalid(path, "not a bolt database, or damaged"))?;
        Ok(Self { file, path: path.to_owned(), meta, bytes: Cell::new(0) })
    }

    /// Whether no transaction was committed since the database was opened.
    pub(crate) fn is_unchanged(&self) -> bool {
        newest(&self.file) == Some(self.meta)
    }

    /// Returns the bucket that contains all others.
    pub(crate) fn root(&self) -> Bucket {
        Bucket { root: self.meta.root, inline: Vec::new() }
    }

    /// Returns all entries of a bucket.
    pub(crate) fn entries(&self, bucket: &Bucket) -> Result<Entries, Error> {
        let mut entries = Vec::new();
        match bucket.root {
            0 => self.collect(&bucket.inline, 0, &mut entries)?,
            root => self.collect(&self.page(root)?, 0, &mut entries)?,
        }
        Ok(entries)
    }

    /// Returns a bucket in a bucket; `None` if the key does not exist, or is not a bucket.
    pub(crate) fn bucket(&self, parent: &Bucket, name: &str) -> Result<Option<Bucket>, Error> {
        let entry = self.entries(parent)?.into_iter().find(|(key, _)| key == name.as_bytes());
        Ok(match entry {
            Some((_, Value::Bucket(bucket))) => Some(bucket),
            _ => None,
        })
    }

    /// Returns the values of a bucket that are text, such as labels.
    pub(crate) fn texts(&self, bucket: &Bucket) -> Result<Vec<(String, String)>, Error> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let entries = self.entries(bucket)?.into_iter();
        Ok(entries
            .filter_map(|(key, value)| match value {
                Value::Data(data) => Some((text(&key), text(&data))),
                Value::Bucket(_) => None,
            })
            .collect())
    }

    /// Reads a page with its overflow pages.
    fn page(&self, id: u64) -> Result<Vec<u8>, Error> {
        let at = id.checked_mul(self.meta.page_size).ok_or_else(|| self.damaged())?;
        let mut head = [0; HEADER];
        self.read(at, &mut head)?;
        let overflow = u64::from(u32_at(&head, 12).unwrap_or_default());
        let length = (overflow + 1).saturating_mul(self.meta.page_size);
        if length > NODE_MAX {
            return Err(self.damaged());
        }
        let mut page = vec![0; length as usize];
        self.read(at, &mut page)?;
        Ok(page)
    }

    /// Counts bytes that are read or copied.
    fn charge(&self, bytes: usize) -> Result<(), Error> {
        let bytes = self.bytes.get() + bytes as u64;
        self.bytes.set(bytes);
        match bytes > BYTES_MAX {
            true => Err(Error::invalid(&self.path, format!("more than {BYTES_MAX} bytes to read"))),
            false => Ok(()),
        }
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), Error> {
        self.charge(into.len())?;
        self.file.read_exact_at(into, at).map_err(Error::io("read", &self.path))
    }

    fn collect(&self, page: &[u8], depth: u32, entries: &mut Entries) -> Result<(), Error> {
        let (Some(flags), Some(count)) = (u16_at(page, 8), u16_at(page, 10)) else { return Err(self.damaged()) };
        if depth > DEPTH_MAX || entries.len() > ENTRIES_MAX || (flags & (BRANCH | LEAF)) == 0 {
            return Err(self.damaged());
        }
        for number in 0..usize::from(count) {
            let element = HEADER + number * ELEMENT;
            match flags & BRANCH != 0 {
                true => {
                    let child = u64_at(page, element + 8).ok_or_else(|| self.damaged())?;
                    self.collect(&self.page(child)?, depth + 1, entries)?;
                }
                false => {
                    // Elements of a damaged page may overlap.
                    self.charge(leaf_size(page, element).ok_or_else(|| self.damaged())?)?;
                    entries.push(leaf(page, element).ok_or_else(|| self.damaged())?);
                }
            }
        }
        Ok(())
    }

    fn damaged(&self) -> Error {
        Error::invalid(&self.path, "damaged, or changed while it was read")
    }
}

/// Returns the number of bytes of the key and the value of an element.
fn leaf_size(page: &[u8], element: usize) -> Option<usize> {
    let length = |offset: usize| u32_at(page, element + offset).map(|length| length as usize);
    length(8)?.checked_add(length(12)?)
}

/// Parses the element of a leaf page.
fn leaf(page: &[u8], element: usize) -> Option<(Vec<u8>, Value)> {
    let field = |offset: usize| u32_at(page, element + offset);
    let (flags, position) = (field(0)?, field(4)? as usize);
    let (key_length, value_length) = (field(8)? as usize, field(12)? as usize);
    let start = element.checked_add(position)?;
    let middle = start.checked_add(key_length)?;
    let key = page.get(start..middle)?;
    let value = page.get(middle..middle.checked_add(value_length)?)?;
    let value = match flags & BUCKET != 0 {
        false => Value::Data(value.to_vec()),
        true => Value::Bucket(Bucket { root: u64_at(value, 0)?, inline: value.get(16..)?.to_vec() }),
    };
    Some((key.to_vec(), value))
}

/// Returns the valid meta page with the newest transaction.
fn newest(file: &File) -> Option<Meta> {
    let mut first = [0; HEADER + META];
    file.read_exact_at(&mut first, 0).ok()?;
    let first = parse_meta(&first);
    // If the first one is damaged, the size of the pages is not known.
    let sizes = match first {
        Some(meta) => vec![meta.page_size],
        None => (9..=16).map(|bits| 1 << bits).collect(),
    };
    let second = sizes.into_iter().find_map(|size| {
        let mut page = [0; HEADER + META];
        file.read_exact_at(&mut page, size).ok()?;
        parse_meta(&page).filter(|meta| meta.page_size == size)
    });
    first.into_iter().chain(second).max_by_key(|meta| meta.transaction)
}

fn parse_meta(page: &[u8]) -> Option<Meta> {
    let meta = page.get(HEADER..HEADER + META)?;
    let page_size = u32_at(meta, 8)?;
    let is_valid = u32_at(meta, 0)? == MAGIC
        && u32_at(meta, 4)? == VERSION
        && u64_at(meta, 56)? == fnv(&meta[..56])
        && page_size.is_power_of_two()
        && PAGE_SIZES.contains(&page_size);
    is_valid.then_some(Meta { page_size: page_size.into(), root: u64_at(meta, 16)?, transaction: u64_at(meta, 48)? })
}

/// FNV-1a, 64 bits.
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

#[cfg(test)]
pub(crate) mod tests;
