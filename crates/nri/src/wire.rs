//! Frames of a connection: ttrpc messages, in frames that belong to one of two logical connections.
//!
//! ```text
//! frame    connection: u32   length: u32   part of a byte stream
//! message  length: u32   stream: u32   kind: u8   flags: u8   payload
//! ```
//! All numbers are big-endian. Each logical connection is a stream of bytes: a message may be spread over several
//! frames.

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Logical connection for requests of the engine.
pub(crate) const PLUGIN_SERVICE: u32 = 1;
/// Logical connection for requests of the plugin.
pub(crate) const RUNTIME_SERVICE: u32 = 2;
/// Most bytes of the payload of a message.
pub(crate) const PAYLOAD_MAX: usize = 4 << 20;

const FRAME_HEADER: usize = 8;
const MESSAGE_HEADER: usize = 10;
const FRAME_MAX: usize = MESSAGE_HEADER + PAYLOAD_MAX;
/// The plugins of the reference implementation read frames into a buffer of this size when they expect the header of a
/// message, and refuse a longer frame.
const FIRST_FRAME: usize = 4096;

/// Kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Request = 1,
    Response = 2,
}

/// A message on a logical connection.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) connection: u32,
    pub(crate) stream: u32,
    pub(crate) kind: Kind,
    pub(crate) payload: Vec<u8>,
}

/// Splits what a plugin sends into messages. Keeps at most one incomplete message of each logical connection.
pub(crate) struct Reader<R> {
    from: R,
    plugin: BytesMut,
    runtime: BytesMut,
}

fn garbage(reason: impl Into<String>) -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::InvalidData, reason.into())
}

impl<R: AsyncRead + Unpin> Reader<R> {
    pub(crate) fn new(from: R) -> Self {
        Self { from, plugin: BytesMut::new(), runtime: BytesMut::new() }
    }

    /// Returns the next message.
    ///
    /// # Errors
    /// `InvalidData` if the plugin does not keep to the protocol; `UnexpectedEof` at the end of the connection.
    pub(crate) async fn next(&mut self) -> std::io::Result<Message> {
        loop {
            for connection in [PLUGIN_SERVICE, RUNTIME_SERVICE] {
                if let Some(message) = take_message(connection, self.stream(connection))? {
                    return Ok(message);
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

    fn stream(&mut self, connection: u32) -> &mut BytesMut {
        if connection == PLUGIN_SERVICE { &mut self.plugin } else { &mut self.runtime }
    }

    async fn read_frame(&mut self, connection: u32, mut length: usize) -> std::io::Result<()> {
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

fn number(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |value, byte| value << 8 | u32::from(*byte))
}

fn take_message(connection: u32, stream: &mut BytesMut) -> std::io::Result<Option<Message>> {
    if stream.len() < MESSAGE_HEADER {
        return Ok(None);
    }
    let length = usize::try_from(number(&stream[..4])).unwrap_or(usize::MAX);
    if length > PAYLOAD_MAX {
        return Err(garbage(format!("a message of {length} bytes; at most {PAYLOAD_MAX} are allowed")));
    }
    let kind = match stream[8] {
        1 => Kind::Request,
        2 => Kind::Response,
        other => return Err(garbage(format!("a message of the unknown kind {other}"))),
    };
    if stream.len() < MESSAGE_HEADER + length {
        return Ok(None);
    }
    let id = number(&stream[4..8]);
    stream.advance(MESSAGE_HEADER);
    let payload = stream.split_to(length).to_vec();
    Ok(Some(Message { connection, stream: id, kind, payload }))
}

/// Writes a message.
pub(crate) async fn write(to: &mut (impl AsyncWrite + Unpin), message: &Message) -> std::io::Result<()> {
    let mut bytes = Vec::with_capacity(MESSAGE_HEADER + message.payload.len());
    bytes.extend(u32::try_from(message.payload.len()).unwrap_or(u32::MAX).to_be_bytes());
    bytes.extend(message.stream.to_be_bytes());
    bytes.extend([message.kind as u8, 0]);
    bytes.extend(&message.payload);
    let (first, rest) = bytes.split_at(bytes.len().min(FIRST_FRAME));
    for part in [first, rest].into_iter().filter(|part| !part.is_empty()) {
        to.write_all(&message.connection.to_be_bytes()).await?;
        to.write_all(&u32::try_from(part.len()).unwrap_or(u32::MAX).to_be_bytes()).await?;
        to.write_all(part).await?;
    }
    to.flush().await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(connection: u32, payload: Vec<u8>) -> Message {
        Message { connection, stream: 7, kind: Kind::Request, payload }
    }

    #[tokio::test]
    async fn a_message_survives_the_frames_that_it_is_split_into() {
        for length in [0, 1, 4085, 4086, 4087, 100_000] {
            let mut bytes = Vec::new();
            write(&mut bytes, &message(RUNTIME_SERVICE, vec![9; length])).await.expect("written");
            let read = Reader::new(&bytes[..]).next().await.expect("a message");
            assert_eq!((read.connection, read.stream, read.payload.len()), (RUNTIME_SERVICE, 7, length));
        }
    }

    #[tokio::test]
    async fn messages_of_two_connections_may_be_interleaved() {
        let (mut first, mut second) = (Vec::new(), Vec::new());
        write(&mut first, &message(PLUGIN_SERVICE, vec![1; 5000])).await.expect("written");
        write(&mut second, &message(RUNTIME_SERVICE, vec![2; 10])).await.expect("written");
        let (head, tail) = first.split_at(FRAME_HEADER + FIRST_FRAME);
        let bytes = [head, &second, tail].concat();
        let mut reader = Reader::new(&bytes[..]);
        assert_eq!(reader.next().await.expect("the whole one").payload, vec![2; 10]);
        assert_eq!(reader.next().await.expect("the split one").payload, vec![1; 5000]);
    }

    #[tokio::test]
    async fn garbage_is_refused_before_memory_is_used_for_it() {
        let long_frame = [0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff];
        let long_message = [&[0, 0, 0, 1, 0, 0, 0, 10][..], &[0xff; 10]].concat();
        let kind = [&[0, 0, 0, 1, 0, 0, 0, 10][..], &[0, 0, 0, 0, 0, 0, 0, 1, 9, 0]].concat();
        for bytes in [&long_frame[..], &long_message, &kind] {
            let error = Reader::new(bytes).next().await.expect_err("refused");
            assert_eq!(error.kind(), std::io::ErrorKind::InvalidData, "{error}");
        }
    }
}
