//! A file that is read while it is being written: a layer is unpacked while it is downloaded, and neither side delays
//! the other.

use std::{
    fs::File,
    io::{self, Read},
    os::unix::fs::FileExt,
    path::Path,
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use crate::{Error, transfers::UnpackLimit};

/// How often a waiting reader checks whether another layer waits for its permit.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);
/// Total time without data after which a reader may have to give up its permit.
const WAIT_MAX: Duration = Duration::from_secs(2);

#[derive(Default)]
struct Progress {
    written: u64,
    /// Set after the last byte was written, or when none will follow.
    end: Option<Result<(), Error>>,
}

type SharedProgress = Arc<(Mutex<Progress>, Condvar)>;

/// The writing side, which notifies the reader of its progress. If it is dropped without [`Writer::end`], the reader
/// fails because the download was aborted.
pub(crate) struct Writer(SharedProgress);

/// The reading side, which waits for more bytes to be written. A reader that spends most of its time waiting fails when
/// another layer waits for a permit to unpack: a slow layer is unpacked after its download.
pub(crate) struct Reader {
    file: File,
    at: u64,
    shared: SharedProgress,
    limit: Arc<UnpackLimit>,
    start: Option<Instant>,
    waited: Duration,
    yielded: Arc<AtomicBool>,
}

/// Returns both sides of a file that was just created.
pub(crate) fn pair(path: &Path, limit: Arc<UnpackLimit>) -> io::Result<(Writer, Reader)> {
    let shared = SharedProgress::default();
    let reader = Reader {
        file: File::open(path)?,
        at: 0,
        shared: shared.clone(),
        limit,
        start: None,
        waited: Duration::ZERO,
        yielded: Arc::default(),
    };
    Ok((Writer(shared), reader))
}

impl Reader {
    /// Returns a flag that is set when the reader gave up its permit.
    pub(crate) fn yielded(&self) -> Arc<AtomicBool> {
        self.yielded.clone()
    }

    /// Adds a wait, and returns whether the reader must give up its permit.
    fn must_yield(&mut self, waited: Duration) -> bool {
        self.waited += waited;
        let all = self.start.get_or_insert_with(Instant::now).elapsed();
        self.waited >= WAIT_MAX && self.waited * 2 >= all && self.limit.has_waiters()
    }
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
        self.end(Err(Error::unavailable("the download was aborted")));
    }
}

impl Read for Reader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let shared = self.shared.clone();
        let mut progress = shared.0.lock().unwrap_or_else(PoisonError::into_inner);
        while progress.written == self.at {
            match &progress.end {
                Some(Ok(())) => return Ok(0),
                Some(Err(error)) => return Err(io::Error::other(error.clone())),
                None => {}
            }
            let start = Instant::now();
            progress = shared.1.wait_timeout(progress, CHECK_INTERVAL).unwrap_or_else(PoisonError::into_inner).0;
            if self.must_yield(start.elapsed()) {
                self.yielded.store(true, Ordering::Relaxed);
                return Err(io::Error::other(Error::unavailable(
                    "the layer is received too slowly to be unpacked at the same time",
                )));
            }
        }
        let available = usize::try_from(progress.written - self.at).unwrap_or(usize::MAX).min(buffer.len());
        drop(progress);
        let read = self.file.read_at(&mut buffer[..available], self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}
