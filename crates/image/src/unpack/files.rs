//! An archive of plain files (an image archive, not a layer), one by one.

use std::{
    io::{self, Read},
    thread,
};

use super::{
    chunks::{Chunks, decompress},
    stream,
    tar::{self, Kind},
    tree::normalize,
};
use crate::Error;

/// What stands under a name.
pub(crate) enum Archived<'a> {
    /// To be read now or never.
    File(&'a mut dyn Read),
    /// A link to another name, relative to its own directory.
    Link(Vec<u8>),
}

/// Calls `each` with every file and link, by its normalized name. Directories and the rest are left out. No more than
/// `limit` bytes are decompressed.
pub(crate) fn each_file(
    source: impl Read + Send,
    limit: u64,
    mut each: impl FnMut(Vec<u8>, Archived<'_>) -> Result<(), Error>,
) -> Result<(), Error> {
    thread::scope(|scope| {
        let (mut chunks, inflate) =
            decompress(scope, source).map_err(|cause| Error::system(format!("start a thread: {cause}")))?;
        let mut begun = false;
        loop {
            let entry = tar::next(&mut chunks).map_err(|cause| match begun {
                true => stream(chunks.passed(), &cause),
                false => no_archive(&cause),
            })?;
            let Some(entry) = entry else { break };
            begun = true;
            if chunks.passed().saturating_add(entry.stored) > limit {
                return Err(Error::invalid(format!("the archive is larger than {limit} bytes")));
            }
            let name = normalize(&entry.path)?;
            match entry.kind {
                Kind::File if entry.sparse.is_none() => {
                    let mut body = Body { chunks: &mut chunks, left: entry.stored };
                    each(name, Archived::File(&mut body))?;
                    let left = body.left;
                    let padding = tar::padding(entry.stored);
                    chunks.skip(left + padding).map_err(|cause| stream(chunks.passed(), &cause))?;
                }
                Kind::File => return Err(Error::invalid("a sparse file in an image archive")),
                Kind::Symlink => each(name, Archived::Link(entry.link))?,
                // Relative to the archive's root, where symlinks are relative to their directory.
                Kind::HardLink => {
                    let up = b"../".repeat(name.iter().filter(|b| **b == b'/').count());
                    each(name, Archived::Link([up, entry.link].concat()))?;
                }
                _ => {}
            }
        }
        drop(chunks);
        inflate.join().map(drop).map_err(|_| Error::system("the decompressing thread panicked"))
    })
}

/// What does not even begin like an archive is something else, not a damaged one.
fn no_archive(cause: &io::Error) -> Error {
    match cause.kind() {
        io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidInput => {
            Error::invalid("it is not an archive (docker archive or OCI layout; tar, plain, gzip or zstd)")
        }
        _ => stream(0, cause),
    }
}

struct Body<'a> {
    chunks: &'a mut Chunks,
    left: u64,
}

impl Read for Body<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 {
            return Ok(0);
        }
        let chunk = self.chunks.fill()?;
        if chunk.is_empty() {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the archive ends in the middle of a file"));
        }
        let count = chunk.len().min(buffer.len()).min(usize::try_from(self.left).unwrap_or(usize::MAX));
        buffer[..count].copy_from_slice(&chunk[..count]);
        self.chunks.consume(count);
        self.left -= count as u64;
        Ok(count)
    }
}
