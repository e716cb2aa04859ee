//! Reads files of a kernel package into memory, up to a maximum size.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

use super::error::Error;

/// Reads a regular file of at most `max` bytes.
pub(super) fn read(path: &Path, max: u64) -> Result<Vec<u8>, Error> {
    const OPERATION: &str = "read";
    let file = File::open(path).map_err(Error::io(OPERATION, path))?;
    let metadata = file.metadata().map_err(Error::io(OPERATION, path))?;
    if !metadata.is_file() {
        return Err(Error::invalid(OPERATION, path, "not a regular file"));
    }
    let content = read_to_end(file, max).map_err(Error::io(OPERATION, path))?;
    content.ok_or_else(|| Error::invalid(OPERATION, path, format!("larger than {max} bytes")))
}

/// Reads a text file of at most `max` bytes.
pub(super) fn read_text(path: &Path, max: u64) -> Result<String, Error> {
    String::from_utf8(read(path, max)?).map_err(|_| Error::invalid("read", path, "not UTF-8"))
}

/// Reads to the end; `None` if that is more than `max` bytes.
pub(super) fn read_to_end(reader: impl Read, max: u64) -> io::Result<Option<Vec<u8>>> {
    let mut content = Vec::new();
    reader.take(max + 1).read_to_end(&mut content)?;
    Ok((content.len() as u64 <= max).then_some(content))
}
