//! One direction of one stream of a client's, whatever carries it.

use bytes::Bytes;
use tokio::sync::mpsc;

use crate::{link::Gone, spdy, websocket};

/// Most pieces of one stream that wait to be consumed: with [`PIECE`] 128 KiB.
pub(crate) const PIECES: usize = 8;
/// Most bytes of a piece.
pub(crate) const PIECE: usize = 16 * 1024;

/// What a client sends on one stream, in order.
pub(crate) struct Inbox {
    queue: mpsc::Receiver<Bytes>,
    credit: Option<spdy::Credit>,
}

impl Inbox {
    pub(crate) fn new(queue: mpsc::Receiver<Bytes>, credit: Option<spdy::Credit>) -> Self {
        Self { queue, credit }
    }

    /// The next piece; `None`: the client sends no more.
    pub(crate) async fn next(&mut self) -> Option<Bytes> {
        let piece = self.queue.recv().await?;
        if let Some(credit) = &mut self.credit {
            credit.consumed(piece.len());
        }
        Some(piece)
    }

    /// The pieces themselves.
    pub(crate) fn into_queue(self) -> mpsc::Receiver<Bytes> {
        self.queue
    }

    /// Consumes what comes, so that it stands in no other stream's way.
    pub(crate) async fn discard(&mut self) {
        while self.next().await.is_some() {}
    }
}

/// Where one stream to the client is written.
pub(crate) enum Outlet {
    Spdy(spdy::Outlet),
    WebSocket(websocket::Outlet),
}

impl Outlet {
    /// Writes all of it.
    pub(crate) async fn send(&mut self, data: &[u8]) -> Result<(), Gone> {
        match self {
            Self::Spdy(outlet) => outlet.send(data).await,
            Self::WebSocket(outlet) => outlet.send(data).await,
        }
    }

    /// Says that no more follows, where the protocol has a word for it.
    pub(crate) async fn finish(&mut self) {
        if let Self::Spdy(outlet) = self {
            outlet.finish().await;
        }
    }

    /// Ends the stream in both directions, where the protocol has a word for it.
    pub(crate) async fn reset(&mut self) {
        if let Self::Spdy(outlet) = self {
            outlet.reset().await;
        }
    }

    /// Resolves when the client wants no more of this stream (or no more at all).
    pub(crate) async fn refused(&self) {
        match self {
            Self::Spdy(outlet) => outlet.refused().await,
            Self::WebSocket(outlet) => outlet.refused().await,
        }
    }
}
