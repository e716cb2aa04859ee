//! A file that is read while it is still written: a layer is unpacked as it arrives, and neither side holds up the other.

use std::{
    fs::File,
    io::{self, Read},
    os::unix::fs::FileExt,
    path::Path,
    sync::{Arc, Condvar, Mutex, PoisonError},
};

use crate::Error;

#[derive(Default)]
struct Progress {
    written: u64,
    /// Set once the last byte is there, or none will come any more.
    end: Option<Result<(), Error>>,
}

type Both = Arc<(Mutex<Progress>, Condvar)>;

/// The writer's word to the reader. Dropped without [`Writer::end`], it tells the reader that the download was given up.
pub(crate) struct Writer(Both);

/// Reads what is there, waits for more.
pub(crate) struct Reader {
    file: File,
    at: u64,
    both: Both,
}

/// Both ends for a file that was just created.
pub(crate) fn pair(path: &Path) -> io::Result<(Writer, Reader)> {
    let both = Both::default();
    Ok((Writer(both.clone()), Reader { file: File::open(path)?, at: 0, both }))
}

impl Writer {
    pub(crate) fn written(&self, bytes: u64) {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner).written += bytes;
        self.0.1.notify_one();
    }

    pub(crate) fn end(&self, result: Result<(), Error>) {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner).end.get_or_insert(result);
        self.0.1.notify_one();
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.end(Err(Error::unavailable("the download was given up")));
    }
}

impl Read for Reader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut progress = self.both.0.lock().unwrap_or_else(PoisonError::into_inner);
        while progress.written == self.at {
            match &progress.end {
                Some(Ok(())) => return Ok(0),
                Some(Err(error)) => return Err(io::Error::other(error.clone())),
                None => progress = self.both.1.wait(progress).unwrap_or_else(PoisonError::into_inner),
            }
        }
        let have = usize::try_from(progress.written - self.at).unwrap_or(usize::MAX).min(buffer.len());
        drop(progress);
        let read = self.file.read_at(&mut buffer[..have], self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}
