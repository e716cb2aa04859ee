//! An image as a tar archive that the daemon imports: an OCI layout or a docker archive.

use std::{io::Write, path::PathBuf};

use crate::{Error, file, tar_split::TarSplit};

/// Length of a block of a tar archive.
const BLOCK: usize = 512;

/// The files of an archive. They are read when it is written.
#[derive(Clone, Debug, Default)]
pub struct Archive {
    pub(crate) members: Vec<Member>,
}

#[derive(Clone, Debug)]
pub(crate) struct Member {
    /// Name in the archive, at most 100 bytes.
    pub(crate) name: String,
    pub(crate) contents: Contents,
}

#[derive(Clone, Debug)]
pub(crate) enum Contents {
    Bytes(Vec<u8>),
    File {
        path: PathBuf,
        size: u64,
    },
    /// A layer that is put together again.
    Layer(TarSplit),
}

impl Contents {
    fn size(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File { size, .. } => *size,
            Self::Layer(layer) => layer.size(),
        }
    }

    fn write(&self, to: &mut dyn Write) -> Result<(), Error> {
        match self {
            Self::Bytes(bytes) => to.write_all(bytes).map_err(Error::io("write", "the archive".as_ref())),
            Self::File { path, size } => file::copy(file::open(path)?, *size, to).map_err(Error::io("read", path)),
            Self::Layer(layer) => layer.write(to),
        }
    }
}

impl Archive {
    pub(crate) fn add(&mut self, name: impl Into<String>, contents: Contents) {
        self.members.push(Member { name: name.into(), contents });
    }

    /// Returns the number of bytes of all files.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.members.iter().map(|member| member.contents.size()).sum()
    }

    /// Returns the digests of the blobs that are whole files: layers and configurations.
    pub fn blobs(&self) -> impl Iterator<Item = &str> {
        self.members.iter().filter_map(|member| member.name.strip_prefix("blobs/sha256/"))
    }

    /// Removes layers that the daemon has already; their digests are the hex digits of `present`. Only those that are
    /// read from files are large enough to matter.
    pub fn omit(&mut self, present: impl Fn(&str) -> bool) {
        self.members.retain(|member| match (&member.contents, member.name.strip_prefix("blobs/sha256/")) {
            (Contents::File { .. }, Some(digest)) => !present(digest),
            _ => true,
        });
    }

    /// Writes the archive. Blocks.
    ///
    /// # Errors
    /// A file of the store has changed or cannot be read, or `to` fails.
    pub fn write(&self, to: &mut dyn Write) -> Result<(), Error> {
        let failed = || Error::io("write", "the archive".as_ref());
        for member in &self.members {
            let size = member.contents.size();
            to.write_all(&header(&member.name, size)).map_err(failed())?;
            member.contents.write(to)?;
            let padding = (BLOCK - (size % BLOCK as u64) as usize) % BLOCK;
            to.write_all(&[0; BLOCK][..padding]).map_err(failed())?;
        }
        to.write_all(&[0; 2 * BLOCK]).map_err(failed())
    }
}

/// Returns the header of a regular file (ustar; sizes from 8 GiB on in base 256, as GNU tar writes them).
fn header(name: &str, size: u64) -> [u8; BLOCK] {
    let mut header = [0; BLOCK];
    let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &name.as_bytes()[..name.len().min(100)]);
    put(100, b"0000644\0");
    put(108, b"0000000\0");
    put(116, b"0000000\0");
    match size < 1 << 33 {
        true => put(124, format!("{size:011o}\0").as_bytes()),
        false => {
            put(124, &[0x80]);
            put(128, &size.to_be_bytes());
        }
    }
    put(136, b"00000000000\0");
    // The checksum is computed as if its field was blank.
    put(148, b"        ");
    put(156, b"0");
    put(257, b"ustar\x0000");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    header
}
