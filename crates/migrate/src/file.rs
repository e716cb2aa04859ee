//! Bounded reading of files of a store.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use rustix::fs::OFlags;
use serde::de::DeserializeOwned;

use crate::Error;

/// The largest JSON or TOML file, in bytes.
const TEXT_MAX: u64 = 64 << 20;
/// The maximum number of entries of a directory.
const ENTRIES_MAX: usize = 100_000;

/// Opens a regular file; its last component must not be a symbolic link.
pub(crate) fn open(path: &Path) -> Result<File, Error> {
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW).bits();
    let file =
        OpenOptions::new().read(true).custom_flags(flags.cast_signed()).open(path).map_err(Error::io("open", path))?;
    match file.metadata().map_err(Error::io("read", path))?.is_file() {
        true => Ok(file),
        false => Err(Error::invalid(path, "not a regular file")),
    }
}

/// Reads a whole file; a larger one than 64 MiB is an error.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, Error> {
    read_up_to(path, TEXT_MAX)
}

/// Reads a whole file; a larger one than `max` bytes is an error.
pub(crate) fn read_up_to(path: &Path, max: u64) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    open(path)?.take(max + 1).read_to_end(&mut bytes).map_err(Error::io("read", path))?;
    match bytes.len() as u64 > max {
        true => Err(Error::invalid(path, format!("larger than {max} bytes"))),
        false => Ok(bytes),
    }
}

/// Reads a JSON file.
pub(crate) fn json<T: DeserializeOwned>(path: &Path) -> Result<T, Error> {
    serde_json::from_slice(&read(path)?).map_err(|error| Error::invalid(path, error.to_string()))
}

/// Returns the names in a directory, sorted; none if it does not exist.
pub(crate) fn names(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten().take(ENTRIES_MAX);
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// Returns the hex digits of a sha256 digest, which are a safe file name; `None` if it is not one.
pub(crate) fn hex(digest: &str) -> Option<&str> {
    let hex = digest.strip_prefix("sha256:").unwrap_or(digest);
    (hex.len() == 64 && hex.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))).then_some(hex)
}

/// Copies exactly `size` bytes.
pub(crate) fn copy(mut from: impl Read, size: u64, to: &mut dyn Write) -> io::Result<()> {
    let copied = io::copy(&mut (&mut from).take(size), to)?;
    match copied == size && from.read(&mut [0])? == 0 {
        true => Ok(()),
        false => Err(io::Error::new(io::ErrorKind::InvalidData, format!("not {size} bytes long"))),
    }
}
