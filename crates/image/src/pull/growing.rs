//! A file that is read while it is still written: a layer is unpacked as it arrives, and neither side holds up the
//! other.

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

use super::turns::Turns;
use crate::Error;

/// How often a reader that waits looks whether its turn is awaited.
const LOOK: Duration = Duration::from_millis(250);
/// Time without data, in all, from which a reader gives way.
const PATIENCE: Duration = Duration::from_secs(2);

#[derive(Default)]
struct Progress {
    written: u64,
    /// Set once the last byte is there, or none will come any more.
    end: Option<Result<(), Error>>,
}

type Both = Arc<(Mutex<Progress>, Condvar)>;

/// The writer's word to the reader. Dropped without [`Writer::end`], it tells the reader that the download was given
/// up.
pub(crate) struct Writer(Both);

/// Reads what is there, waits for more. A reader that spends most of its time waiting fails when its turn to unpack is
/// awaited: what is slow to arrive is unpacked when it has arrived.
pub(crate) struct Reader {
    file: File,
    at: u64,
    both: Both,
    turns: Arc<Turns>,
    began: Option<Instant>,
    waited: Duration,
    gave_way: Arc<AtomicBool>,
}

/// Both ends for a file that was just created.
pub(crate) fn pair(path: &Path, turns: Arc<Turns>) -> io::Result<(Writer, Reader)> {
    let both = Both::default();
    let reader = Reader {
        file: File::open(path)?,
        at: 0,
        both: both.clone(),
        turns,
        began: None,
        waited: Duration::ZERO,
        gave_way: Arc::default(),
    };
    Ok((Writer(both), reader))
}

impl Reader {
    /// Set once the reader gave way.
    pub(crate) fn gave_way(&self) -> Arc<AtomicBool> {
        self.gave_way.clone()
    }

    /// Counts a wait; whether it is too much.
    fn gives_way(&mut self, waited: Duration) -> bool {
        self.waited += waited;
        let all = self.began.get_or_insert_with(Instant::now).elapsed();
        self.waited >= PATIENCE && self.waited * 2 >= all && self.turns.are_awaited()
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
        self.end(Err(Error::unavailable("the download was given up")));
    }
}

impl Read for Reader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let both = self.both.clone();
        let mut progress = both.0.lock().unwrap_or_else(PoisonError::into_inner);
        while progress.written == self.at {
            match &progress.end {
                Some(Ok(())) => return Ok(0),
                Some(Err(error)) => return Err(io::Error::other(error.clone())),
                None => {}
            }
            let began = Instant::now();
            progress = both.1.wait_timeout(progress, LOOK).unwrap_or_else(PoisonError::into_inner).0;
            if self.gives_way(began.elapsed()) {
                self.gave_way.store(true, Ordering::Relaxed);
                return Err(io::Error::other(Error::unavailable(
                    "the layer arrives too slowly to be unpacked meanwhile",
                )));
            }
        }
        let have = usize::try_from(progress.written - self.at).unwrap_or(usize::MAX).min(buffer.len());
        drop(progress);
        let read = self.file.read_at(&mut buffer[..have], self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}
