//! Messages, and what a transport of them has to do.

use std::io;

use bytes::{Buf, BytesMut};

/// Most bytes of the payload of a message.
pub const PAYLOAD_MAX: usize = 4 << 20;
/// Length of the header of a message in bytes.
pub const HEADER: usize = 10;

/// Kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A request.
    Request = 1,
    /// The response to a request.
    Response = 2,
}

/// A message.
#[derive(Debug)]
pub struct Message {
    /// Number of the request, odd if the peer that opened the connection sends it.
    pub stream: u32,
    /// Its kind.
    pub kind: Kind,
    /// An encoded [`crate::Request`] or [`crate::Response`].
    pub payload: Vec<u8>,
}

/// Receives messages.
pub trait Receive: Send + 'static {
    /// Returns the next message. Never called again after an error or when it was cancelled.
    ///
    /// # Errors
    /// `InvalidData` if the peer does not keep to the protocol; `UnexpectedEof` at the end of the connection.
    fn next(&mut self) -> impl Future<Output = io::Result<Message>> + Send;
}

/// Sends messages.
pub trait Transmit: Send + 'static {
    /// Sends a message. Never called again after an error.
    ///
    /// # Errors
    /// Those of write(2).
    fn send(&mut self, message: &Message) -> impl Future<Output = io::Result<()>> + Send;
}

/// Encodes a message.
pub fn encode(message: &Message) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER + message.payload.len());
    bytes.extend(u32::try_from(message.payload.len()).unwrap_or(u32::MAX).to_be_bytes());
    bytes.extend(message.stream.to_be_bytes());
    bytes.extend([message.kind as u8, 0]);
    bytes.extend(&message.payload);
    bytes
}

/// Takes a message, whose payload has at most `payload_max` bytes, from the beginning of what was received; `None`: it is not
/// complete yet.
///
/// # Errors
/// `InvalidData` for a message that is too long or of an unknown kind.
pub fn take(received: &mut BytesMut, payload_max: usize) -> io::Result<Option<Message>> {
    let Some((header, _)) = received.split_first_chunk::<HEADER>() else { return Ok(None) };
    let [a, b, c, d, e, f, g, h, kind, _flags] = *header;
    let length = usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap_or(usize::MAX);
    if length > payload_max {
        return Err(garbage(format!("a message of {length} bytes; at most {payload_max} are allowed")));
    }
    let kind = match kind {
        1 => Kind::Request,
        2 => Kind::Response,
        other => return Err(garbage(format!("a message of the unknown kind {other}"))),
    };
    if received.len() < HEADER + length {
        return Ok(None);
    }
    received.advance(HEADER);
    let payload = received.split_to(length).to_vec();
    Ok(Some(Message { stream: u32::from_be_bytes([e, f, g, h]), kind, payload }))
}

fn garbage(reason: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_taken_once_it_is_complete() {
        let bytes = encode(&Message { stream: 7, kind: Kind::Response, payload: vec![9; 300] });
        let mut received = BytesMut::new();
        for byte in &bytes[..bytes.len() - 1] {
            received.extend_from_slice(&[*byte]);
            assert!(take(&mut received, 300).expect("valid").is_none());
        }
        received.extend_from_slice(&[9, 1]);
        let message = take(&mut received, 300).expect("valid").expect("complete");
        assert_eq!((message.stream, message.kind, message.payload), (7, Kind::Response, vec![9; 300]));
        assert_eq!(received[..], [1], "the next message is left alone");
    }

    #[test]
    fn garbage_is_refused_before_memory_is_used_for_it() {
        let headers = [
            [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1, 1, 0],
            [0, 0, 0, 0, 0, 0, 0, 1, 9, 0],
            [0, 0, 0, 9, 0, 0, 0, 1, 1, 0],
        ];
        for header in headers {
            let error = take(&mut BytesMut::from(&header[..]), 8).expect_err("refused");
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
        }
    }
}
