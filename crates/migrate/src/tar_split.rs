//! Layers that were unpacked, put together again from their files: the metadata of tar-split
//! (github.com/vbatts/tar-split), which Docker and containers/storage keep for this purpose.
//!
//! The metadata is gzip of JSON values, one for each part of the tar archive: bytes (type 2), or the contents of a file
//! (type 1) in the directory of the layer. The result is the archive byte by byte; the daemon checks the digest when it imports it.

use std::{
    collections::{HashMap, hash_map::Entry},
    fs::File,
    io::{BufRead, BufReader, Read, Write},
    os::fd::AsRawFd,
    path::{Path, PathBuf},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use flate2::bufread::MultiGzDecoder;
use rustix::{
    fd::OwnedFd,
    fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2},
};
use serde::Deserialize;

use crate::{Error, file};

const FILE: u8 = 1;
const SEGMENT: u8 = 2;
/// The longest line of the metadata, in bytes: padding of a tar archive may be some MiB.
const LINE_MAX: u64 = 64 << 20;
/// Most parts of a layer.
const PARTS_MAX: u64 = 20_000_000;
/// The largest layer, in bytes.
const SIZE_MAX: u64 = 1 << 42;

/// A layer that can be put together again.
#[derive(Clone, Debug)]
pub(crate) struct TarSplit {
    metadata: PathBuf,
    directory: PathBuf,
    size: u64,
}

/// Layers that were opened, by their metadata: images share layers.
#[derive(Debug, Default)]
pub(crate) struct Opened(HashMap<PathBuf, TarSplit>);

impl Opened {
    /// Returns a layer, opened by [`TarSplit::open`] if it is used for the first time.
    pub(crate) fn layer(&mut self, metadata: PathBuf, directory: PathBuf) -> Result<TarSplit, Error> {
        match self.0.entry(metadata) {
            Entry::Occupied(entry) => Ok(entry.get().clone()),
            Entry::Vacant(entry) => {
                let layer = TarSplit::open(entry.key().clone(), directory)?;
                Ok(entry.insert(layer).clone())
            }
        }
    }
}

#[derive(Deserialize)]
struct Part {
    #[serde(rename = "type")]
    kind: u8,
    #[serde(default)]
    name: String,
    /// A name that is not UTF-8, in base64.
    #[serde(default)]
    name_raw: Option<String>,
    #[serde(default)]
    size: u64,
    #[serde(default)]
    payload: Option<String>,
}

impl TarSplit {
    /// Reads the metadata once, to find the size of the archive. `directory` has the files of the layer.
    pub(crate) fn open(metadata: PathBuf, directory: PathBuf) -> Result<Self, Error> {
        let mut layer = Self { metadata, directory, size: 0 };
        let mut size: u64 = 0;
        layer.each(|part| {
            let bytes = match part.kind {
                // Padded base64.
                SEGMENT => layer.payload(&part)?.len() as u64,
                _ => part.size,
            };
            size = size.saturating_add(bytes);
            match size > SIZE_MAX {
                true => Err(Error::invalid(&layer.metadata, "the layer is too large")),
                false => Ok(()),
            }
        })?;
        layer.size = size;
        Ok(layer)
    }

    /// Returns the size of the archive in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Writes the archive. Blocks.
    pub(crate) fn write(&self, to: &mut dyn Write) -> Result<(), Error> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = openat(CWD, &self.directory, flags, Mode::empty())
            .map_err(|error| Error::io("open", &self.directory)(error.into()))?;
        let failed = || Error::io("write", "the archive".as_ref());
        self.each(|part| match part.kind {
            SEGMENT => to.write_all(&self.payload(&part)?).map_err(failed()),
            _ if part.size == 0 => Ok(()),
            _ => {
                let name = self.name(&part)?;
                let source = open(&directory, &name).map_err(Error::io("open", &self.directory.join(&name)))?;
                file::copy(source, part.size, to).map_err(Error::io("read", &self.directory.join(&name)))
            }
        })
    }

    fn payload(&self, part: &Part) -> Result<Vec<u8>, Error> {
        let payload = part.payload.as_deref().unwrap_or_default();
        STANDARD.decode(payload).map_err(|error| Error::invalid(&self.metadata, error.to_string()))
    }

    fn name(&self, part: &Part) -> Result<PathBuf, Error> {
        use std::os::unix::ffi::OsStringExt;
        let bytes = match &part.name_raw {
            Some(raw) => STANDARD.decode(raw).map_err(|error| Error::invalid(&self.metadata, error.to_string()))?,
            None => part.name.clone().into_bytes(),
        };
        let name = PathBuf::from(std::ffi::OsString::from_vec(bytes));
        Ok(name.strip_prefix("/").map(Path::to_owned).unwrap_or(name))
    }

    /// Calls `visit` with each part, in order.
    fn each(&self, mut visit: impl FnMut(Part) -> Result<(), Error>) -> Result<(), Error> {
        let invalid = |reason: String| Error::invalid(&self.metadata, reason);
        let mut lines = BufReader::new(MultiGzDecoder::new(BufReader::new(file::open(&self.metadata)?)));
        let mut line = Vec::new();
        for _ in 0..PARTS_MAX {
            line.clear();
            let read = (&mut lines).take(LINE_MAX).read_until(b'\n', &mut line);
            if read.map_err(Error::io("read", &self.metadata))? == 0 {
                return Ok(());
            }
            if line.last() != Some(&b'\n') && line.len() as u64 == LINE_MAX {
                return Err(invalid(format!("a line of more than {LINE_MAX} bytes")));
            }
            let part: Part = serde_json::from_slice(&line).map_err(|error| invalid(error.to_string()))?;
            match part.kind {
                FILE | SEGMENT => visit(part)?,
                kind => return Err(invalid(format!("a part of the unknown type {kind}"))),
            }
        }
        Err(invalid(format!("more than {PARTS_MAX} parts")))
    }
}

/// Opens a regular file below a directory, without following symbolic links. Nothing else is opened: an image may contain
/// the node of a device that acts when it is opened, such as a watchdog.
fn open(directory: &OwnedFd, name: &Path) -> std::io::Result<File> {
    let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let found = File::from(openat2(directory, name, flags, Mode::empty(), resolve)?);
    match found.metadata()?.is_file() {
        true => File::open(format!("/proc/self/fd/{}", found.as_raw_fd())),
        false => Err(std::io::Error::new(std::io::ErrorKind::InvalidData, "not a regular file")),
    }
}

#[cfg(test)]
mod tests;
