//! Iteration over the files of an image archive (not of a layer).

use std::{
    io::{self, Read},
    thread,
};

use super::{
    chunks::{Chunks, decompress},
    stream_error, tar,
    tar_entry::Kind,
    tree::normalize,
};
use crate::Error;

/// An entry of an image archive.
pub(crate) enum ArchiveEntry<'a> {
    /// A file, which must be read during the call.
    File(&'a mut dyn Read),
    /// A link to another name, relative to its own directory.
    Link(Vec<u8>),
}

/// Calls `each` with every file and link, by its normalized name. Other entries are skipped. At most `limit` bytes are
/// decompressed.
pub(crate) fn each_file(
    source: impl Read + Send,
    limit: u64,
    mut each: impl FnMut(Vec<u8>, ArchiveEntry<'_>) -> Result<(), Error>,
) -> Result<(), Error> {
    thread::scope(|scope| {
        let (mut chunks, inflate) =
            decompress(scope, source).map_err(|cause| Error::system(format!("start a thread: {cause}")))?;
        let mut started = false;
        loop {
            let entry = tar::next(&mut chunks).map_err(|cause| match started {
                true => stream_error(chunks.passed(), &cause),
                false => no_archive(&cause),
            })?;
            let Some(entry) = entry else { break };
            started = true;
            if chunks.passed().saturating_add(entry.stored) > limit {
                return Err(Error::invalid(format!("the archive is larger than {limit} bytes")));
            }
            let name = normalize(&entry.path)?;
            match entry.kind {
                Kind::File if entry.sparse.is_none() => {
                    let mut body = Body { chunks: &mut chunks, remaining: entry.stored };
                    each(name, ArchiveEntry::File(&mut body))?;
                    let remaining = body.remaining;
                    let padding = tar::padding(entry.stored);
                    chunks.skip(remaining + padding).map_err(|cause| stream_error(chunks.passed(), &cause))?;
                }
                Kind::File => return Err(Error::invalid("a sparse file in an image archive")),
                Kind::Symlink => each(name, ArchiveEntry::Link(entry.link))?,
                // The target is relative to the archive's root, whereas that of a symlink is relative to its directory.
                Kind::HardLink => {
                    let up = b"../".repeat(name.iter().filter(|b| **b == b'/').count());
                    each(name, ArchiveEntry::Link([up, entry.link].concat()))?;
                }
                _ => {}
            }
        }
        drop(chunks);
        inflate.join().map(drop).map_err(|_| Error::system("the decompressing thread panicked"))
    })
}

/// Returns the error for a source whose start is not that of an archive: it is something else, rather than a damaged
/// archive.
fn no_archive(cause: &io::Error) -> Error {
    match cause.kind() {
        io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidInput => {
            Error::invalid("it is not an archive (docker archive or OCI layout; tar, plain, gzip or zstd)")
        }
        _ => stream_error(0, cause),
    }
}

struct Body<'a> {
    chunks: &'a mut Chunks,
    remaining: u64,
}

impl Read for Body<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.remaining == 0 {
            return Ok(0);
        }
        let chunk = self.chunks.fill()?;
        if chunk.is_empty() {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the archive ends in the middle of a file"));
        }
        let count = chunk.len().min(buffer.len()).min(usize::try_from(self.remaining).unwrap_or(usize::MAX));
        buffer[..count].copy_from_slice(&chunk[..count]);
        self.chunks.consume(count);
        self.remaining -= count as u64;
        Ok(count)
    }
}
