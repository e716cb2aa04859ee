//! The log of a container: the CRI's format, as files that may be rotated while they are read.
//!
//! `2016-10-06T00:17:09.669794202Z stdout F a line` or `… stderr P a piece of `: a moment, a stream, whether the line
//! ends here, and the text (Kubernetes, "CRI logging").

use std::{
    collections::VecDeque,
    fs::File,
    io::{self, BufRead, BufReader, Seek, SeekFrom},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// Longest line that is believed; a longer one is not from us.
const LINE_MAX: usize = 1024 * 1024;

/// One line of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// As it stands in the file.
    pub(crate) moment: String,
    /// Whether it was written to standard error.
    pub(crate) stderr: bool,
    /// What was written; its line end too, if it had one.
    pub(crate) text: Vec<u8>,
}

impl Entry {
    /// Takes one line apart; `None` if it has not the form.
    pub(crate) fn parse(line: &[u8]) -> Option<Self> {
        let mut parts = line.splitn(4, |byte| *byte == b' ');
        let (moment, stream, tag, text) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
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
        Some(Self { moment: String::from_utf8(moment.to_vec()).ok()?, stderr, text })
    }

    /// Whether it was written at this moment or after; nanoseconds since 1970.
    pub(crate) fn is_since(&self, moment: i64) -> bool {
        crate::moment::parse(&self.moment).is_some_and(|at| at >= moment)
    }

    /// Whether the line ends here.
    pub(crate) fn ends_line(&self) -> bool {
        self.text.ends_with(b"\n")
    }
}

/// Reads a log from its beginning, and over rotations.
pub(crate) struct LogFile {
    path: PathBuf,
    reader: BufReader<File>,
    inode: u64,
    /// The beginning of a line whose end is not written yet.
    pending: Vec<u8>,
}

impl LogFile {
    /// Opens the log as it is now.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let inode = file.metadata()?.ino();
        Ok(Self { path: path.to_path_buf(), reader: BufReader::new(file), inode, pending: Vec::new() })
    }

    /// The next whole line that has the form; `None` when there is none yet.
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

    /// At the end of the file: goes on in the next one if the path names another, from the start if this one was cut.
    fn rotated(&mut self) -> io::Result<bool> {
        // Between rename and reopening there is none: not yet.
        let Ok(now) = std::fs::metadata(&self.path) else { return Ok(false) };
        if now.ino() != self.inode {
            // The renamed file may have grown between the last read and this look.
            if self.reader.read_until(b'\n', &mut self.pending)? > 0 {
                return Ok(true);
            }
            *self = Self::open(&self.path)?;
            return Ok(true);
        }
        if now.len() < self.reader.stream_position()? {
            self.reader.seek(SeekFrom::Start(0))?;
            self.pending.clear();
            return Ok(true);
        }
        Ok(false)
    }

    /// The last `lines` of what is written up to now, of what is `wanted`. Only so much is kept in memory.
    pub(crate) fn tail(&mut self, lines: usize, wanted: impl Fn(&Entry) -> bool) -> io::Result<Vec<Entry>> {
        let mut kept: VecDeque<Entry> = VecDeque::new();
        let mut ends = 0;
        while let Some(entry) = self.next()? {
            if !wanted(&entry) {
                continue;
            }
            ends += usize::from(entry.ends_line());
            kept.push_back(entry);
            while ends > lines || (lines == 0 && !kept.is_empty()) {
                ends -= kept.pop_front().map_or(0, |entry| usize::from(entry.ends_line()));
            }
        }
        Ok(kept.into())
    }
}

#[cfg(test)]
mod tests;
