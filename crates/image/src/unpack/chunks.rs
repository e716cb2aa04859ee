//! Decompression on its own thread, which returns the bytes of a layer in large buffers.
//!
//! ```text
//! source ──read──▶ gunzip / unzstd ──▶ sha256 (diff id) ──buffers──▶ tar parser
//!                  `─────────── decompressing thread ────────────┘      caller's thread
//! ```
//! The buffers are reused, so that their number does not depend on the layer's size.

use std::{
    io::{self, BufRead, BufReader, Read},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread::{self, Scope, ScopedJoinHandle},
};

use crate::{Digest, digest::Hasher};

/// Size of one buffer.
const BUFFER: usize = 512 * 1024;
/// Buffers in flight per layer.
const IN_FLIGHT: usize = 4;
/// Compressed bytes read at once.
const READ: usize = 128 * 1024;
/// zstd windows above 2^27 bytes (128 MiB) are refused: memory is bounded.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;
/// Every decoder has to take windows up to 2^23 bytes (8 MiB, RFC 8878, 3.1.1.1.2).
const ZSTD_WINDOW_LOG: u32 = 23;

/// Held while a stream with a large window is decompressed: only one at a time in this process.
static LARGE_WINDOW: Mutex<()> = Mutex::new(());
/// Number of streams that wait for [`LARGE_WINDOW`].
static LARGE_WINDOWS_WAITING: AtomicUsize = AtomicUsize::new(0);

/// Whether a stream waits for another one's large window.
pub(crate) fn large_window_is_awaited() -> bool {
    LARGE_WINDOWS_WAITING.load(Ordering::Relaxed) > 0
}

fn large_window() -> MutexGuard<'static, ()> {
    LARGE_WINDOWS_WAITING.fetch_add(1, Ordering::Relaxed);
    let guard = LARGE_WINDOW.lock().unwrap_or_else(PoisonError::into_inner);
    LARGE_WINDOWS_WAITING.fetch_sub(1, Ordering::Relaxed);
    guard
}

/// The decompressed bytes of a layer, which are read once in order.
pub(crate) struct Chunks {
    full: Receiver<io::Result<Vec<u8>>>,
    empty: SyncSender<Vec<u8>>,
    current: Vec<u8>,
    at: usize,
    passed: u64,
    ended: bool,
}

/// Starts the decompression. The handle returns the diff id after everything was read.
pub(crate) fn decompress<'scope, 'env, R: Read + Send + 'scope>(
    scope: &'scope Scope<'scope, 'env>,
    source: R,
) -> io::Result<(Chunks, ScopedJoinHandle<'scope, Digest>)> {
    let (full_in, full) = sync_channel(IN_FLIGHT);
    let (empty, empty_out) = sync_channel(IN_FLIGHT);
    for _ in 0..IN_FLIGHT {
        let _ = empty.send(Vec::new());
    }
    let handle = thread::Builder::new().name("image-inflate".into()).spawn_scoped(scope, move || {
        super::priority::lower_priority();
        let mut hasher = Hasher::new();
        if let Err(error) = pump(source, &full_in, &empty_out, &mut hasher) {
            let _ = full_in.send(Err(error));
        }
        hasher.finish()
    })?;
    Ok((Chunks { full, empty, current: Vec::new(), at: 0, passed: 0, ended: false }, handle))
}

/// Decompresses until the end of the stream, or until the reader was dropped.
fn pump(
    source: impl Read,
    full: &SyncSender<io::Result<Vec<u8>>>,
    empty: &Receiver<Vec<u8>>,
    hasher: &mut Hasher,
) -> io::Result<()> {
    let mut decoder = decoder(BufReader::with_capacity(READ, source))?;
    while let Ok(mut buffer) = empty.recv() {
        buffer.resize(BUFFER, 0);
        let mut filled = 0;
        while filled < BUFFER {
            match decoder.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if filled == 0 {
            return Ok(());
        }
        buffer.truncate(filled);
        hasher.update(&buffer);
        if full.send(Ok(buffer)).is_err() {
            return Ok(());
        }
    }
    Ok(())
}

/// Returns the decoder for the first bytes. The media type is not used, because those of registries are not always
/// right.
fn decoder<'a, R: BufRead + 'a>(mut source: R) -> io::Result<Box<dyn Read + 'a>> {
    // Every source used here returns the first bytes with one read. A source of fewer bytes is not compressed.
    let head = source.fill_buf()?;
    if head.starts_with(&[0x1f, 0x8b]) {
        return Ok(Box::new(flate2::bufread::MultiGzDecoder::new(source)));
    }
    let skippable = head.len() >= 4 && head[0] & 0xf0 == 0x50 && head[1..4] == [0x2a, 0x4d, 0x18];
    if head.starts_with(&ZSTD_MAGIC) || skippable {
        let large = window_log(head).is_some_and(|log| log > ZSTD_WINDOW_LOG);
        let guard = large.then(large_window);
        let mut decoder = zstd::stream::read::Decoder::with_buffer(source)?;
        decoder.window_log_max(if large { ZSTD_WINDOW_LOG_MAX } else { ZSTD_WINDOW_LOG })?;
        return Ok(Box::new(Zstd { decoder, _large_window: guard }));
    }
    Ok(Box::new(source))
}

const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// A decoder, which holds [`LARGE_WINDOW`] if its window is large.
struct Zstd<'a, R: BufRead> {
    decoder: zstd::stream::read::Decoder<'a, R>,
    _large_window: Option<MutexGuard<'static, ()>>,
}

impl<R: BufRead> Read for Zstd<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.decoder.read(buffer)
    }
}

/// Returns the binary logarithm of the window's size in the header of a zstd frame, rounded up (RFC 8878, 3.1.1.1).
/// Later frames of a stream are limited by that of the first one.
fn window_log(head: &[u8]) -> Option<u32> {
    let frame = head.strip_prefix(&ZSTD_MAGIC)?;
    let descriptor = *frame.first()?;
    if descriptor & 0x20 == 0 {
        let window = *frame.get(1)?;
        return Some(10 + u32::from(window >> 3) + u32::from(window & 7 != 0));
    }
    // Single segment: the window is the size of the content, which follows the dictionary's id.
    let dictionary = [0, 1, 2, 4][usize::from(descriptor & 3)];
    let length = [1, 2, 4, 8][usize::from(descriptor >> 6)];
    let mut size = [0; 8];
    size[..length].copy_from_slice(frame.get(1 + dictionary..1 + dictionary + length)?);
    Some(u64::BITS - u64::from_le_bytes(size).leading_zeros())
}

impl Chunks {
    /// Returns the available bytes, at least one; empty at the end.
    pub(crate) fn fill(&mut self) -> io::Result<&[u8]> {
        while self.at == self.current.len() && !self.ended {
            let used = std::mem::take(&mut self.current);
            let _ = self.empty.try_send(used);
            self.at = 0;
            match self.full.recv() {
                Ok(Ok(buffer)) => self.current = buffer,
                Ok(Err(error)) => {
                    self.ended = true;
                    return Err(error);
                }
                Err(_) => self.ended = true,
            }
        }
        Ok(&self.current[self.at..])
    }

    /// Consumes `count` of the bytes that [`Self::fill`] returned.
    pub(crate) fn consume(&mut self, count: usize) {
        self.at += count;
        self.passed += count as u64;
    }

    /// Bytes consumed so far.
    pub(crate) fn passed(&self) -> u64 {
        self.passed
    }

    /// Fills `buffer`, or fails with `UnexpectedEof`.
    pub(crate) fn read_exact(&mut self, mut buffer: &mut [u8]) -> io::Result<()> {
        while !buffer.is_empty() {
            let chunk = self.fill()?;
            if chunk.is_empty() {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the archive ends in the middle of an entry"));
            }
            let count = chunk.len().min(buffer.len());
            buffer[..count].copy_from_slice(&chunk[..count]);
            self.consume(count);
            buffer = &mut buffer[count..];
        }
        Ok(())
    }

    /// Skips `count` bytes.
    pub(crate) fn skip(&mut self, mut count: u64) -> io::Result<()> {
        while count > 0 {
            let available = self.fill()?.len();
            if available == 0 {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the archive ends in the middle of an entry"));
            }
            let step = usize::try_from(count).unwrap_or(usize::MAX).min(available);
            self.consume(step);
            count -= step as u64;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Cursor, Read, Write};

    use super::{decoder, window_log};

    fn compressed(log: u32, bytes: &[u8]) -> Vec<u8> {
        let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
        encoder.window_log(log).unwrap();
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn window_sizes_are_parsed_and_limited() {
        let read = |bytes: &[u8]| decoder(Cursor::new(bytes)).and_then(|mut from| from.read_to_end(&mut Vec::new()));
        for log in [18, 23, 24, 27] {
            let bytes = compressed(log, &vec![7; 1 << 20]);
            assert_eq!(window_log(&bytes), Some(log));
            assert_eq!(read(&bytes).unwrap(), 1 << 20);
        }
        assert!(read(&compressed(28, &vec![7; 1 << 20])).is_err());
        let grows = [compressed(20, &[1; 100]), compressed(27, &[1; 100])].concat();
        assert!(read(&grows).is_err(), "a later frame needs a larger window than the first");
        assert_eq!(window_log(&zstd::encode_all(&[0; 1000][..], 1).unwrap()).map(|log| log <= 23), Some(true));
    }
}
