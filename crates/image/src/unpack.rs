//! Unpacking of a layer's archive into a directory for overlayfs.
//!
//! The archive is untrusted: see [`tree`] for paths, [`attributes`] for what it may set, [`Limits`] for sizes.

mod attributes;
mod chunks;
mod entry;
mod file;
mod files;
mod pax;
mod priority;
mod sparse;
mod tar;
mod tar_entry;
mod tree;
mod whiteout;

use std::{collections::BTreeMap, io::Read, thread};

use rustix::fd::OwnedFd;

use self::{
    tar_entry::Meta,
    tree::{Tree, show},
};
use crate::{Digest, Error, single_flight::CancelToken};

pub(crate) use self::{
    attributes::set as set_attributes,
    chunks::{Chunks, decompress, large_window_is_awaited},
    files::{ArchiveEntry, each_file},
    priority::lower_priority,
    tar_entry::Meta as Attributes,
    tree::{normalize, remove_path},
};

/// Most memory for the paths and attributes of a layer's directories, which are kept until its end, in bytes.
const DIRECTORIES_MEMORY_MAX: usize = 64 * 1024 * 1024;
/// Memory of one directory in addition to its path and attributes, in bytes.
const DIRECTORY_MEMORY: usize = 128;

/// Limits of one layer. They are generous: they stop decompression bombs, not images.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Decompressed bytes, and bytes of files (a sparse file counts with its full size).
    pub(crate) bytes: u64,
    /// Entries of the archive.
    pub(crate) entries: u64,
}

impl Limits {
    pub(crate) fn exceeded(&self) -> Error {
        Error::invalid(format!(
            "larger than {} bytes unpacked; raise registries.max_layer_bytes if the image is to be trusted",
            self.bytes
        ))
    }
}

/// The result of unpacking a layer.
#[derive(Debug)]
pub(crate) struct UnpackResult {
    /// Digest of the decompressed archive.
    pub(crate) diff_id: Digest,
    /// Directories without their own entry, parents first. Their attributes are those in the layers below.
    pub(crate) implied: Vec<Vec<u8>>,
}

/// Unpacks `source` (tar, gzip or zstd) into the empty directory `root`. Fails before the next entry once it is
/// cancelled. Blocks: not for an async thread.
pub(crate) fn unpack(
    source: impl Read + Send,
    root: OwnedFd,
    limits: Limits,
    cancel: &CancelToken,
) -> Result<UnpackResult, Error> {
    thread::scope(|scope| {
        let started = decompress(scope, source);
        let (chunks, inflate) = started.map_err(|cause| Error::system(format!("start a thread: {cause}")))?;
        let files = thread::Builder::new().name("image-unpack".into()).spawn_scoped(scope, move || {
            priority::lower_priority();
            let mut unpacker = Unpacker::new(root, chunks, limits, cancel.clone());
            unpacker.run()?;
            unpacker.finish()
        });
        let files = files.map_err(|cause| Error::system(format!("start a thread: {cause}")))?;
        let implied = files.join().map_err(|_| Error::system("the unpacking thread panicked"))??;
        let diff_id = inflate.join().map_err(|_| Error::system("the decompressing thread panicked"))?;
        Ok(UnpackResult { diff_id, implied })
    })
}

/// Computes the diff id of `source` without unpacking it. Blocks: not for an async thread.
pub(crate) fn diff_id(source: impl Read + Send, limits: Limits, cancel: &CancelToken) -> Result<Digest, Error> {
    thread::scope(|scope| {
        let started = decompress(scope, source);
        let (mut chunks, inflate) = started.map_err(|cause| Error::system(format!("start a thread: {cause}")))?;
        loop {
            let at = chunks.passed();
            let count = chunks.fill().map_err(|cause| stream_error(at, &cause))?.len();
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

/// The state of unpacking one layer.
struct Unpacker {
    tree: Tree,
    chunks: Chunks,
    limits: Limits,
    /// Bytes of files so far.
    bytes: u64,
    /// Attributes that directories get at the end, because creating files in them would change their times, and a mode
    /// may forbid it.
    directories: BTreeMap<Vec<u8>, Meta>,
    /// Estimate of the memory of `directories` and of the tree's implied directories. Directories that were replaced
    /// still count.
    directories_memory: usize,
    umask: u32,
    cancel: CancelToken,
}

impl Unpacker {
    fn new(root: OwnedFd, chunks: Chunks, limits: Limits, cancel: CancelToken) -> Self {
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

    /// Unpacks all entries, then reads the rest of the stream, which is part of the digest.
    fn run(&mut self) -> Result<(), Error> {
        let mut entries = 0;
        while let Some(entry) =
            tar::next(&mut self.chunks).map_err(|cause| stream_error(self.chunks.passed(), &cause))?
        {
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
            let count = self.chunks.fill().map_err(|cause| stream_error(at, &cause))?.len();
            self.chunks.consume(count);
            self.check_size(0)?;
            if count == 0 {
                return Ok(());
            }
        }
    }

    /// Checks the limits on decompressed bytes and on bytes of files, before `more` bytes are written.
    fn check_size(&mut self, more: u64) -> Result<(), Error> {
        self.bytes = self.bytes.saturating_add(more);
        match self.bytes > self.limits.bytes || self.chunks.passed() > self.limits.bytes {
            true => Err(self.limits.exceeded()),
            false => Ok(()),
        }
    }

    /// Records the attributes that a directory gets at the end.
    fn remember(&mut self, path: &[u8], meta: &Meta) -> Result<(), Error> {
        self.charge_directory(path.len() + meta.xattr_bytes())?;
        self.directories.insert(path.to_vec(), meta.clone());
        Ok(())
    }

    /// Checks the limit on the memory of directories, before one more is recorded.
    fn charge_directory(&mut self, bytes: usize) -> Result<(), Error> {
        self.directories_memory += bytes + DIRECTORY_MEMORY;
        match self.directories_memory > DIRECTORIES_MEMORY_MAX {
            true => Err(Error::invalid(format!(
                "paths and attributes of its directories take more than {DIRECTORIES_MEMORY_MAX} bytes"
            ))),
            false => Ok(()),
        }
    }

    /// Sets the attributes of directories. Returns the implied ones, parents first.
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

/// Returns the error for a failed read of the stream: that of its source, or that of the archive.
fn stream_error(at: u64, cause: &std::io::Error) -> Error {
    if let Some(error) = cause.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
        return error.clone();
    }
    Error::corrupt(format!("read the archive at byte {at}: {cause}"))
}

/// Returns the umask of this process. Unlike umask(2), reading it from `/proc` does not change it.
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

/// Returns the path of an entry for an error message.
fn display_path(path: &[u8]) -> String {
    if path.is_empty() { "/".to_owned() } else { show(path) }
}
