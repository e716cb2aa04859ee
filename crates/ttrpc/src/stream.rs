//! Messages over a stream socket, one after the other.

use std::io;

use bytes::BytesMut;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
};

use crate::{
    Connection, Service,
    message::{Message, PAYLOAD_MAX, Receive, Transmit, encode, take},
};

/// Bytes that are received at once.
const CHUNK: usize = 16 << 10;

/// Receives messages of a socket.
pub struct StreamReader {
    from: OwnedReadHalf,
    received: BytesMut,
    payload_max: usize,
}

/// Sends messages to a socket.
pub struct StreamWriter(OwnedWriteHalf);

/// Splits a socket.
pub fn stream(socket: UnixStream) -> (StreamReader, StreamWriter) {
    let (read_half, write_half) = socket.into_split();
    let reader = StreamReader { from: read_half, received: BytesMut::new(), payload_max: PAYLOAD_MAX };
    (reader, StreamWriter(write_half))
}

/// Creates a connection over a socket.
pub fn connect(socket: UnixStream, service: Service) -> Connection {
    connect_with_limit(socket, service, PAYLOAD_MAX)
}

/// Creates a connection over a socket to a peer whose messages have at most this number of bytes.
pub fn connect_with_limit(socket: UnixStream, service: Service, payload_max: usize) -> Connection {
    let (reader, writer) = stream(socket);
    Connection::new(StreamReader { payload_max, ..reader }, writer, service)
}

impl Receive for StreamReader {
    async fn next(&mut self) -> io::Result<Message> {
        loop {
            if let Some(message) = take(&mut self.received, self.payload_max)? {
                return Ok(message);
            }
            self.received.reserve(CHUNK);
            if self.from.read_buf(&mut self.received).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

impl Transmit for StreamWriter {
    async fn send(&mut self, message: &Message) -> io::Result<()> {
        self.0.write_all(&encode(message)).await
    }
}
