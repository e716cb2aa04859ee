//! Reads the log of a container in the CRI's format, from files that may be rotated in the meantime.
//!
//! An entry is `2016-10-06T00:17:09.669794202Z stdout F a line` or `… stderr P a piece of `: a timestamp, a stream,
//! whether the line ends here (`F`, full) or not (`P`, partial), and the text (Kubernetes, "CRI logging").

use std::{
    collections::VecDeque,
    fs::File,
    io::{self, BufRead, BufReader, Seek, SeekFrom},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// Maximum length of a line. A longer one was not written by pinion and is skipped.
const LINE_MAX: usize = 1024 * 1024;

/// One entry of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The timestamp as it is written in the file.
    pub(crate) timestamp: String,
    /// Whether the container wrote it to standard error.
    pub(crate) stderr: bool,
    /// The output, with its newline if it had one.
    pub(crate) text: Vec<u8>,
}

impl Entry {
    /// Parses one line of the file. Returns `None` if it does not have the CRI's format.
    pub(crate) fn parse(line: &[u8]) -> Option<Self> {
        let mut parts = line.splitn(4, |byte| *byte == b' ');
        let (timestamp, stream, tag, text) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let mut text = text.strip_suffix(b"\n").unwrap_or(text).to_vec();
        match tag.split(|byte| *byte == b':').next()? {
            b"F" => text.push(b'\n'),
            b"P" => {}
            _ => return None,
        }
        let stderr = match stream {
            b"stdout" => false,
            b"stderr" => true,
            _ => return None,
        };
        Some(Self { timestamp: String::from_utf8(timestamp.to_vec()).ok()?, stderr, text })
    }

    /// Whether the entry was written at `time` or later; `time` is in nanoseconds since 1970.
    pub(crate) fn is_since(&self, time: i64) -> bool {
        crate::timestamp::parse(&self.timestamp).is_some_and(|written| written >= time)
    }

    /// Whether the entry ends a line of output.
    pub(crate) fn ends_line(&self) -> bool {
        self.text.ends_with(b"\n")
    }
}

/// Reads a log from its beginning and follows it over rotations.
pub(crate) struct LogFile {
    path: PathBuf,
    reader: BufReader<File>,
    inode: u64,
    /// The start of a line whose end is not written yet.
    pending: Vec<u8>,
}

impl LogFile {
    /// Opens the current file of the log.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let inode = file.metadata()?.ino();
        Ok(Self { path: path.to_path_buf(), reader: BufReader::new(file), inode, pending: Vec::new() })
    }

    /// Returns the next complete entry, or `None` if there is none yet. Lines that are not in the CRI's format are
    /// skipped.
    pub(crate) fn next(&mut self) -> io::Result<Option<Entry>> {
        loop {
            let read = self.reader.read_until(b'\n', &mut self.pending)?;
            if self.pending.ends_with(b"\n") {
                let line = std::mem::take(&mut self.pending);
                if let Some(entry) = Entry::parse(&line) {
                    return Ok(Some(entry));
                }
            } else if read == 0 && !self.rotated()? {
                return Ok(None);
            }
            if self.pending.len() > LINE_MAX {
                self.pending.clear();
            }
        }
    }

    /// Checks, at the end of the file, whether there is more to read: in the next file if the log was rotated, or from
    /// the start if this file was truncated.
    fn rotated(&mut self) -> io::Result<bool> {
        // The file does not exist between the rename and the reopening; the caller tries again.
        let Ok(metadata) = std::fs::metadata(&self.path) else { return Ok(false) };
        if metadata.ino() != self.inode {
            // The renamed file may have grown since the last read.
            if self.reader.read_until(b'\n', &mut self.pending)? > 0 {
                return Ok(true);
            }
            *self = Self::open(&self.path)?;
            return Ok(true);
        }
        if metadata.len() < self.reader.stream_position()? {
            self.reader.seek(SeekFrom::Start(0))?;
            self.pending.clear();
            return Ok(true);
        }
        Ok(false)
    }

    /// Returns the last `lines` lines written so far, counting only entries that match `filter`. Keeps no more than
    /// these lines in memory.
    pub(crate) fn tail(&mut self, lines: usize, filter: impl Fn(&Entry) -> bool) -> io::Result<Vec<Entry>> {
        let mut tail: VecDeque<Entry> = VecDeque::new();
        let mut line_ends = 0;
        while let Some(entry) = self.next()? {
            if !filter(&entry) {
                continue;
            }
            line_ends += usize::from(entry.ends_line());
            tail.push_back(entry);
            while line_ends > lines || (lines == 0 && !tail.is_empty()) {
                line_ends -= tail.pop_front().map_or(0, |entry| usize::from(entry.ends_line()));
            }
        }
        Ok(tail.into())
    }
}

#[cfg(test)]
mod tests;
