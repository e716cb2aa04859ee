//! The end of a log, for an error.

use std::{
    fs::File,
    io::{Read, Seek, SeekFrom},
};

use super::log_file::read_log;
use crate::{Error, error::failed, store::ContainerMetadata};

/// Bytes that are read: each line has a prefix.
const READ_MAX: u64 = 16 << 10;

/// Returns the end of the output in a log, at most this long, on one line. Blocks.
///
/// # Errors
/// The log cannot be read.
pub(crate) fn log_tail(metadata: &ContainerMetadata, length: usize) -> Result<String, Error> {
    let Some(log) = read_log(metadata)? else { return Ok(String::new()) };
    let mut file = File::from(log);
    let mut bytes = Vec::new();
    let end = file.seek(SeekFrom::End(0)).map_err(failed("read a log"))?;
    file.seek(SeekFrom::Start(end.saturating_sub(READ_MAX))).map_err(failed("read a log"))?;
    file.take(READ_MAX).read_to_end(&mut bytes).map_err(failed("read a log"))?;
    let text = String::from_utf8_lossy(&bytes);
    // A line is `TIME STREAM TAG OUTPUT`.
    let output =
        text.lines().filter_map(|line| line.splitn(4, ' ').nth(3)).map(str::trim).filter(|line| !line.is_empty());
    let mut joined = output.collect::<Vec<_>>().join(" | ");
    joined.retain(|character| !character.is_control());
    Ok(joined[joined.ceil_char_boundary(joined.len().saturating_sub(length))..].to_owned())
}
