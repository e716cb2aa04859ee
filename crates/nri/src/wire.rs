//! Frames of a connection: ttrpc messages, in frames that belong to one of two logical connections.
//!
//! ```text
//! frame    connection: u32   length: u32   part of a byte stream
//! message  length: u32   stream: u32   kind: u8   flags: u8   payload
//! ```
//! All numbers are big-endian. Each logical connection is a stream of bytes: a message may be spread over several
//! frames.

use std::io;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use ttrpc::{HEADER, Kind, Message, PAYLOAD_MAX, Receive, Transmit};

/// Logical connection for requests of the engine, and their responses.
const PLUGIN_SERVICE: u32 = 1;
/// Logical connection for requests of the plugin, and their responses.
const RUNTIME_SERVICE: u32 = 2;

const FRAME_HEADER: usize = 8;
const FRAME_MAX: usize = HEADER + PAYLOAD_MAX;
/// The plugins of the reference implementation read frames into a buffer of this size when they expect the header of a
/// message, and refuse a longer frame.
const FIRST_FRAME: usize = 4096;

/// Splits what a plugin sends into messages. Keeps at most one incomplete message of each logical connection.
pub(crate) struct Reader<R> {
    from: R,
    plugin: BytesMut,
    runtime: BytesMut,
}

/// Sends messages to a plugin.
pub(crate) struct Writer<W>(pub(crate) W);

fn garbage(reason: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason.into())
}

impl<R: AsyncRead + Unpin + Send> Reader<R> {
    pub(crate) fn new(from: R) -> Self {
        Self { from, plugin: BytesMut::new(), runtime: BytesMut::new() }
    }

    fn stream(&mut self, connection: u32) -> &mut BytesMut {
        if connection == PLUGIN_SERVICE { &mut self.plugin } else { &mut self.runtime }
    }

    async fn read_frame(&mut self, connection: u32, mut length: usize) -> io::Result<()> {
        let known = connection == PLUGIN_SERVICE || connection == RUNTIME_SERVICE;
        let mut part = [0; 8192];
        // Memory is used for bytes that have arrived, not for those that a header promises.
        while length > 0 {
            let wanted = length.min(part.len());
            self.from.read_exact(&mut part[..wanted]).await?;
            if known {
                self.stream(connection).extend_from_slice(&part[..wanted]);
            }
            length -= wanted;
        }
        Ok(())
    }
}

impl<R: AsyncRead + Unpin + Send + 'static> Receive for Reader<R> {
    async fn next(&mut self) -> io::Result<Message> {
        loop {
            for (connection, expected) in [(PLUGIN_SERVICE, Kind::Response), (RUNTIME_SERVICE, Kind::Request)] {
                match ttrpc::take(self.stream(connection), PAYLOAD_MAX)? {
                    None => {}
                    Some(message) if message.kind == expected => return Ok(message),
                    Some(message) => {
                        return Err(garbage(format!("a {:?} on connection {connection}", message.kind)));
                    }
                }
            }
            let mut header = [0; FRAME_HEADER];
            self.from.read_exact(&mut header).await?;
            let [connection, length] = [number(&header[..4]), number(&header[4..])];
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            if length > FRAME_MAX {
                return Err(garbage(format!("a frame of {length} bytes; at most {FRAME_MAX} are allowed")));
            }
            self.read_frame(connection, length).await?;
        }
    }
}

fn number(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |value, byte| value << 8 | u32::from(*byte))
}

impl<W: AsyncWrite + Unpin + Send + 'static> Transmit for Writer<W> {
    async fn send(&mut self, message: &Message) -> io::Result<()> {
        let connection = match message.kind {
            Kind::Request => PLUGIN_SERVICE,
            Kind::Response => RUNTIME_SERVICE,
        };
        let bytes = ttrpc::encode(message);
        let (first, rest) = bytes.split_at(bytes.len().min(FIRST_FRAME));
        for part in [first, rest].into_iter().filter(|part| !part.is_empty()) {
            self.0.write_all(&connection.to_be_bytes()).await?;
            self.0.write_all(&u32::try_from(part.len()).unwrap_or(u32::MAX).to_be_bytes()).await?;
            self.0.write_all(part).await?;
        }
        self.0.flush().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn frames(kind: Kind, payload: Vec<u8>) -> Vec<u8> {
        let mut writer = Writer(Vec::new());
        writer.send(&Message { stream: 7, kind, payload }).await.expect("written");
        writer.0
    }

    /// Returns what the peer reads: on its side the two logical connections have the opposite meaning.
    async fn read(bytes: Vec<u8>) -> io::Result<Message> {
        Reader::new(io::Cursor::new(bytes)).next().await
    }

    /// Swaps the logical connection of each frame, as if the peer had sent it.
    fn swap(mut bytes: Vec<u8>) -> Vec<u8> {
        let mut at = 0;
        while at < bytes.len() {
            bytes[at + 3] = if bytes[at + 3] == 1 { 2 } else { 1 };
            at += FRAME_HEADER + number(&bytes[at + 4..at + 8]) as usize;
        }
        bytes
    }

    #[tokio::test]
    async fn a_message_survives_the_frames_that_it_is_split_into() {
        for length in [0, 1, 4085, 4086, 4087, 100_000] {
            let message = read(swap(frames(Kind::Request, vec![9; length]).await)).await.expect("a message");
            assert_eq!((message.kind, message.stream, message.payload.len()), (Kind::Request, 7, length));
        }
    }

    #[tokio::test]
    async fn messages_of_two_connections_may_be_interleaved() {
        let first = swap(frames(Kind::Response, vec![1; 5000]).await);
        let second = swap(frames(Kind::Request, vec![2; 10]).await);
        let (head, tail) = first.split_at(FRAME_HEADER + FIRST_FRAME);
        let mut reader = Reader::new(io::Cursor::new([head, &second, tail].concat()));
        assert_eq!(reader.next().await.expect("the whole one").payload, vec![2; 10]);
        assert_eq!(reader.next().await.expect("the split one").payload, vec![1; 5000]);
    }

    #[tokio::test]
    async fn garbage_is_refused_before_memory_is_used_for_it() {
        let long_frame = vec![0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff];
        let long_message = [&[0, 0, 0, 1, 0, 0, 0, 10][..], &[0xff; 10]].concat();
        let kind = [&[0, 0, 0, 1, 0, 0, 0, 10][..], &[0, 0, 0, 0, 0, 0, 0, 1, 9, 0]].concat();
        let request_on_the_wrong_connection = frames(Kind::Request, Vec::new()).await;
        for bytes in [long_frame, long_message, kind, request_on_the_wrong_connection] {
            let error = read(bytes).await.expect_err("refused");
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
        }
    }
}
