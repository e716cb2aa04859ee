//! Adapters between async streams and blocking threads.

use std::io::{self, Read, Write};

use bytes::{Buf, Bytes, BytesMut};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    sync::mpsc,
};

use crate::{Disk, Error};

/// Size of one piece, in bytes.
const PIECE: usize = 256 * 1024;
/// Pieces that may wait in the queue.
const QUEUE: usize = 4;

/// The reading side of [`feed`], for a blocking thread.
pub(super) struct Reader {
    queue: mpsc::Receiver<io::Result<Bytes>>,
    current: Bytes,
}

impl Read for Reader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.current.is_empty() {
            match self.queue.blocking_recv() {
                Some(piece) => self.current = piece?,
                None => return Ok(0),
            }
        }
        let count = self.current.len().min(buffer.len());
        self.current.copy_to_slice(&mut buffer[..count]);
        Ok(count)
    }
}

/// Runs `work` on its own thread, with a reader of the bytes of `source`.
pub(super) async fn feed<T: Send + 'static>(
    disk: &Disk,
    source: &mut (dyn AsyncRead + Send + Unpin),
    work: impl FnOnce(Reader) -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let (pieces, queue) = mpsc::channel(QUEUE);
    let working = disk.thread("image-import", move || work(Reader { queue, current: Bytes::new() }));
    let feeding = async move {
        loop {
            let mut piece = BytesMut::with_capacity(PIECE);
            let piece = match source.read_buf(&mut piece).await {
                Ok(0) => return,
                Ok(_) => Ok(piece.freeze()),
                Err(cause) => Err(cause),
            };
            if pieces.send(piece).await.is_err() {
                return; // the reader needs no more
            }
        }
    };
    tokio::join!(working, feeding).0
}

/// The writing side of [`drain`], for a blocking thread.
pub(super) struct Writer {
    queue: mpsc::Sender<Bytes>,
    current: BytesMut,
}

impl Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.current.extend_from_slice(bytes);
        if self.current.len() >= PIECE {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let piece = self.current.split().freeze();
        self.queue.blocking_send(piece).map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))
    }
}

/// Runs `work` on its own thread, and copies what it writes to `sink`.
pub(super) async fn drain(
    disk: &Disk,
    sink: &mut (dyn AsyncWrite + Send + Unpin),
    work: impl FnOnce(Writer) -> Result<(), Error> + Send + 'static,
) -> Result<(), Error> {
    let (queue, mut pieces) = mpsc::channel::<Bytes>(QUEUE);
    let working = disk.thread("image-export", move || work(Writer { queue, current: BytesMut::new() }));
    let draining = async move {
        while let Some(piece) = pieces.recv().await {
            sink.write_all(&piece).await?;
        }
        sink.flush().await
    };
    let (worked, drained) = tokio::join!(working, draining);
    drained.map_err(|cause| Error::system(format!("write the archive: {cause}")))?;
    worked
}
