//! The connection of a client whose session has started.

use bytes::Bytes;
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    net::{TcpStream, tcp::OwnedWriteHalf},
};
use tokio_util::sync::CancellationToken;

use crate::link::Lifetime;

/// A client's connection after its upgrade.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    /// Data that the client sent together with its request.
    pub(crate) received: Bytes,
    pub(crate) lifetime: Lifetime,
}

impl Client {
    /// Splits the connection into its two directions.
    pub(crate) fn split(self) -> (impl AsyncRead + Send + Unpin + 'static, OwnedWriteHalf, Lifetime) {
        let (read, write) = self.stream.into_split();
        (std::io::Cursor::new(self.received).chain(read), write, self.lifetime)
    }

    /// Returns the token that is cancelled when the connection is closed or must be closed.
    pub(crate) fn closed(&self) -> CancellationToken {
        self.lifetime.closed.clone()
    }
}
