use std::io;

use tokio::net::UnixStream;

/// Longest line that QEMU may send.
pub(super) const LINE_MAX: usize = 1 << 20;
/// Maximum number of bytes that are read at once.
const CHUNK: usize = 16 << 10;

/// Splits what a socket receives into lines.
#[derive(Default)]
pub(super) struct LineReader {
    buffer: Vec<u8>,
    /// Beginning of the next line.
    start: usize,
    /// Everything between `start` and here has no end of line.
    searched: usize,
}

impl LineReader {
    /// Reads the next line, without its end. Cancelling it loses nothing.
    ///
    /// # Errors
    /// `InvalidData` for a line that is too long, `UnexpectedEof` for a closed connection, and the errors of read(2).
    pub(super) async fn next(&mut self, socket: &UnixStream) -> io::Result<Vec<u8>> {
        loop {
            if let Some(line) = self.buffered_line() {
                return Ok(line);
            }
            if self.buffer.len() > LINE_MAX {
                let error = format!("QEMU sent a line of more than {LINE_MAX} bytes");
                return Err(io::Error::new(io::ErrorKind::InvalidData, error));
            }
            socket.readable().await?;
            self.read(socket)?;
        }
    }

    /// Takes a line out of the buffer, or moves its beginning to the front of the buffer.
    fn buffered_line(&mut self) -> Option<Vec<u8>> {
        if let Some(length) = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n') {
            let end = self.searched + length;
            let line = self.buffer[self.start..end].to_vec();
            self.start = end + 1;
            self.searched = self.start;
            return Some(line);
        }
        self.buffer.drain(..self.start);
        // A long line does not occupy its memory forever.
        self.buffer.shrink_to(self.buffer.len().max(CHUNK));
        self.start = 0;
        self.searched = self.buffer.len();
        None
    }

    fn read(&mut self, socket: &UnixStream) -> io::Result<()> {
        let mut chunk = [0; CHUNK];
        match socket.try_read(&mut chunk) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                self.buffer.extend_from_slice(&chunk[..count]);
                Ok(())
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
