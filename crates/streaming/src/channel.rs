//! The two directions of a client's stream, independent of the protocol.

use bytes::Bytes;
use tokio::sync::mpsc;

use crate::{link::Closed, spdy, websocket};

/// The receiving end of a stream: the data that the client sends, in order.
pub(crate) enum Inbox {
    Spdy(spdy::Inbox),
    WebSocket(mpsc::Receiver<Bytes>),
}

impl Inbox {
    /// Returns the next piece; `None` when the client sends no more.
    pub(crate) async fn next(&mut self) -> Option<Bytes> {
        match self {
            Self::Spdy(inbox) => inbox.next().await,
            Self::WebSocket(inbox) => inbox.recv().await,
        }
    }

    /// Discards all further data, so that this stream does not block the others of its connection.
    pub(crate) async fn discard(&mut self) {
        while self.next().await.is_some() {}
    }
}

/// The sending end of a stream.
pub(crate) enum Outlet {
    Spdy(spdy::Outlet),
    WebSocket(websocket::Outlet),
}

impl Outlet {
    /// Sends all data.
    pub(crate) async fn send(&mut self, data: &[u8]) -> Result<(), Closed> {
        match self {
            Self::Spdy(outlet) => outlet.send(data).await,
            Self::WebSocket(outlet) => outlet.send(data).await,
        }
    }

    /// Ends the stream in this direction, if the protocol supports it.
    pub(crate) async fn finish(&mut self) {
        if let Self::Spdy(outlet) = self {
            outlet.finish().await;
        }
    }

    /// Ends the stream in both directions, if the protocol supports it.
    pub(crate) async fn reset(&mut self) {
        if let Self::Spdy(outlet) = self {
            outlet.reset().await;
        }
    }

    /// Resolves when the client has reset this stream or has disconnected.
    pub(crate) async fn closed(&self) {
        match self {
            Self::Spdy(outlet) => outlet.closed().await,
            Self::WebSocket(outlet) => outlet.closed().await,
        }
    }
}
