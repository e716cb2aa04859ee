//! A layer's archive in, a directory for overlayfs out.
//!
//! The archive is hostile: see [`tree`] for paths, [`attributes`] for what it may set, [`Limits`] for sizes.

mod attributes;
mod background;
mod chunks;
mod entry;
mod file;
mod files;
mod pax;
mod sparse;
mod tar;
mod tree;
mod whiteout;

use std::{collections::BTreeMap, io::Read, thread};

use rustix::fd::OwnedFd;

use self::{
    chunks::Chunks,
    tar::Meta,
    tree::{Tree, show},
};
use crate::{Digest, Error, flight::Cancel};

pub(crate) use self::{
    attributes::set as set_attributes,
    background::step_back,
    chunks::large_window_is_awaited,
    files::{Archived, each_file},
    tar::Meta as Attributes,
    tree::{normalize, remove_path},
};

/// Most memory for what is remembered of a layer's directories until its end: paths and attributes.
const DIRECTORIES_MEMORY_MAX: usize = 64 * 1024 * 1024;
/// What one directory takes beside its path and attributes.
const DIRECTORY_MEMORY: usize = 128;

/// Bounds of one layer; generous: they stop bombs, not images.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Decompressed bytes, and bytes of files (a sparse file counts whole).
    pub(crate) bytes: u64,
    /// Entries of the archive.
    pub(crate) entries: u64,
}

impl Limits {
    fn exceeded(&self) -> Error {
        Error::invalid(format!(
            "larger than {} bytes unpacked; raise registries.max_layer_bytes if the image is to be trusted",
            self.bytes
        ))
    }
}

/// What came out.
#[derive(Debug)]
pub(crate) struct Unpacked {
    /// Digest of the decompressed archive.
    pub(crate) diff_id: Digest,
    /// Directories without an entry of their own, parents first: their attributes are those of the layer below.
    pub(crate) implied: Vec<Vec<u8>>,
}

/// Unpacks `source` (tar, gzip or zstd) into the empty directory `root`. Ends with an error before the next entry once
/// it is cancelled. Blocks: not for an async thread.
pub(crate) fn unpack(
    source: impl Read + Send,
    root: OwnedFd,
    limits: Limits,
    cancel: &Cancel,
) -> Result<Unpacked, Error> {
    thread::scope(|scope| {
        let started = chunks::decompress(scope, source);
        let (chunks, inflate) = started.map_err(|cause| Error::system(format!("start a thread: {cause}")))?;
        let files = thread::Builder::new().name("image-unpack".into()).spawn_scoped(scope, move || {
            background::step_back();
            let mut unpacker = Unpacker::new(root, chunks, limits, cancel.clone());
            unpacker.run()?;
            unpacker.finish()
        });
        let files = files.map_err(|cause| Error::system(format!("start a thread: {cause}")))?;
        let implied = files.join().map_err(|_| Error::system("the unpacking thread panicked"))??;
        let diff_id = inflate.join().map_err(|_| Error::system("the decompressing thread panicked"))?;
        Ok(Unpacked { diff_id, implied })
    })
}

/// The diff id of `source`, of which nothing is unpacked. Blocks: not for an async thread.
pub(crate) fn diff_id(source: impl Read + Send, limits: Limits, cancel: &Cancel) -> Result<Digest, Error> {
    thread::scope(|scope| {
        let started = chunks::decompress(scope, source);
        let (mut chunks, inflate) = started.map_err(|cause| Error::system(format!("start a thread: {cause}")))?;
        loop {
            let at = chunks.passed();
            let count = chunks.fill().map_err(|cause| stream(at, &cause))?.len();
            chunks.consume(count);
            if chunks.passed() > limits.bytes {
                return Err(limits.exceeded());
            }
            cancel.check()?;
            if count == 0 {
                break;
            }
        }
        drop(chunks);
        inflate.join().map_err(|_| Error::system("the decompressing thread panicked"))
    })
}

/// State of one layer's unpacking.
struct Unpacker {
    tree: Tree,
    chunks: Chunks,
    limits: Limits,
    /// Bytes of files so far.
    bytes: u64,
    /// What directories get at the end: files made in them would change their times, and a mode may forbid them.
    directories: BTreeMap<Vec<u8>, Meta>,
    /// Estimate of the memory of `directories` and of the tree's implied directories; what was replaced still counts.
    directories_memory: usize,
    umask: u32,
    cancel: Cancel,
}

impl Unpacker {
    fn new(root: OwnedFd, chunks: Chunks, limits: Limits, cancel: Cancel) -> Self {
        Self {
            tree: Tree::new(root),
            chunks,
            limits,
            bytes: 0,
            directories: BTreeMap::new(),
            directories_memory: 0,
            umask: umask(),
            cancel,
        }
    }

    /// All entries, then the rest of the stream, which belongs to the digest too.
    fn run(&mut self) -> Result<(), Error> {
        let mut entries = 0;
        while let Some(entry) = tar::next(&mut self.chunks).map_err(|cause| stream(self.chunks.passed(), &cause))? {
            self.cancel.check()?;
            entries += 1;
            if entries > self.limits.entries {
                return Err(Error::invalid(format!("more than {} entries", self.limits.entries)));
            }
            let path = normalize(&entry.path)?;
            self.apply(&path, &entry)?;
        }
        loop {
            let at = self.chunks.passed();
            let count = self.chunks.fill().map_err(|cause| stream(at, &cause))?.len();
            self.chunks.consume(count);
            self.check_size(0)?;
            if count == 0 {
                return Ok(());
            }
        }
    }

    /// Bounds what was decompressed and what files take, before `more` bytes are written.
    fn check_size(&mut self, more: u64) -> Result<(), Error> {
        self.bytes = self.bytes.saturating_add(more);
        match self.bytes > self.limits.bytes || self.chunks.passed() > self.limits.bytes {
            true => Err(self.limits.exceeded()),
            false => Ok(()),
        }
    }

    /// Remembers what a directory gets at the end.
    fn remember(&mut self, path: &[u8], meta: &Meta) -> Result<(), Error> {
        self.charge_directory(path.len() + meta.xattr_bytes())?;
        self.directories.insert(path.to_vec(), meta.clone());
        Ok(())
    }

    /// Bounds the memory of directories, before one more.
    fn charge_directory(&mut self, bytes: usize) -> Result<(), Error> {
        self.directories_memory += bytes + DIRECTORY_MEMORY;
        match self.directories_memory > DIRECTORIES_MEMORY_MAX {
            true => Err(Error::invalid(format!(
                "paths and attributes of its directories take more than {DIRECTORIES_MEMORY_MAX} bytes"
            ))),
            false => Ok(()),
        }
    }

    /// Gives directories their attributes; returns those that are implied, parents first.
    fn finish(&mut self) -> Result<Vec<Vec<u8>>, Error> {
        if !self.directories.contains_key(&b""[..]) {
            self.tree.implied.insert(Vec::new());
        }
        for (path, meta) in std::mem::take(&mut self.directories) {
            self.finish_directory(&path, &meta)?;
        }
        Ok(std::mem::take(&mut self.tree.implied).into_iter().collect())
    }
}

/// A failure of the stream: of the archive, or of what it comes from.
fn stream(at: u64, cause: &std::io::Error) -> Error {
    if let Some(error) = cause.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
        return error.clone();
    }
    Error::corrupt(format!("read the archive at byte {at}: {cause}"))
}

/// This process's umask, which the kernel tells without changing it.
fn umask() -> u32 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    line.and_then(|mask| u32::from_str_radix(mask.trim(), 8).ok()).unwrap_or(0o777)
}

impl std::fmt::Debug for Unpacker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "unpacking at byte {}", self.chunks.passed())
    }
}

#[cfg(test)]
mod tests;

/// Names an entry in an error.
fn naming(path: &[u8]) -> String {
    if path.is_empty() { "/".to_owned() } else { show(path) }
}
