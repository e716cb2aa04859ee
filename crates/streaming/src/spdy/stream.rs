//! Streams that a client opened.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{
    connection::Connection,
    frame::{self, Reset},
    headers::{Deflater, Headers},
};
use crate::link::Closed;

/// A stream's window is opened each time after this many bytes were consumed.
const CREDIT: usize = 32 * 1024;
/// Maximum size of our data frames in bytes.
const FRAME_MAX: usize = 1 << 20;

/// A stream that waits to be accepted or refused.
pub(crate) struct Offer {
    pub(super) id: u32,
    pub(super) headers: Headers,
    pub(super) inbox: mpsc::Receiver<Bytes>,
    pub(super) reset: CancellationToken,
}

/// An accepted stream.
pub(crate) struct Stream {
    pub(crate) inbox: Inbox,
    pub(crate) outlet: Outlet,
}

/// Accepts and refuses the streams of a connection. Only it writes headers, because they are one compressed stream.
pub(crate) struct Acceptor {
    pub(super) offers: mpsc::Receiver<Offer>,
    pub(super) deflater: Deflater,
    pub(super) connection: Arc<Connection>,
}

impl Offer {
    pub(crate) fn headers(&self) -> &Headers {
        &self.headers
    }

    pub(crate) fn id(&self) -> u32 {
        self.id
    }
}

impl Acceptor {
    /// Returns the connection.
    pub(crate) fn connection(&self) -> Arc<Connection> {
        Arc::clone(&self.connection)
    }

    /// Returns the next stream; `None` when the connection has ended.
    pub(crate) async fn next(&mut self) -> Option<Offer> {
        self.offers.recv().await
    }

    /// Accepts a stream with a SYN_REPLY; the client sends data from then on.
    pub(crate) async fn accept(&mut self, offer: Offer) -> Result<Stream, Closed> {
        let reply = frame::syn_reply(&mut self.deflater, offer.id);
        self.connection.link().write(&reply, &[]).await?;
        let credit = Credit { id: offer.id, consumed: 0, connection: Arc::clone(&self.connection) };
        let outlet =
            Outlet { id: offer.id, connection: Arc::clone(&self.connection), reset: offer.reset, finished: false };
        Ok(Stream { inbox: Inbox { queue: offer.inbox, credit }, outlet })
    }

    /// Refuses a stream.
    pub(crate) async fn refuse(&self, offer: Offer) {
        self.connection.reset(offer.id, Reset::Refused).await;
    }
}

/// The receiving end of a stream.
pub(crate) struct Inbox {
    queue: mpsc::Receiver<Bytes>,
    credit: Credit,
}

impl Inbox {
    /// Returns the next piece; `None` when the client sends no more.
    pub(crate) async fn next(&mut self) -> Option<Bytes> {
        let piece = self.queue.recv().await?;
        self.credit.consumed(piece.len());
        Some(piece)
    }
}

/// Opens the window of a stream as its data is consumed.
struct Credit {
    id: u32,
    consumed: usize,
    connection: Arc<Connection>,
}

impl Credit {
    fn consumed(&mut self, bytes: usize) {
        self.consumed += bytes;
        if self.consumed >= CREDIT && self.connection.enqueue(frame::window_update(self.id, self.consumed as u32)) {
            self.consumed = 0;
        }
    }
}

/// The sending end of a stream.
pub(crate) struct Outlet {
    id: u32,
    connection: Arc<Connection>,
    reset: CancellationToken,
    finished: bool,
}

impl Outlet {
    /// Sends all data, as far as the peer's windows permit.
    pub(crate) async fn send(&mut self, mut data: &[u8]) -> Result<(), Closed> {
        while !data.is_empty() {
            let length = self.connection.take_window(self.id, data.len().min(FRAME_MAX)).await?;
            let (now, later) = data.split_at(length);
            self.connection.link().write(&frame::data_head(self.id, false, length), now).await?;
            data = later;
        }
        Ok(())
    }

    /// Ends the stream in this direction.
    pub(crate) async fn finish(&mut self) {
        if !std::mem::replace(&mut self.finished, true) && !self.reset.is_cancelled() {
            // This fails if the client has disconnected.
            let _ = self.connection.link().write(&frame::data_head(self.id, true, 0), &[]).await;
            self.connection.finished(self.id);
        }
    }

    /// Ends the stream in both directions at once.
    pub(crate) async fn reset(&mut self) {
        if !std::mem::replace(&mut self.finished, true) && !self.reset.is_cancelled() {
            self.connection.reset(self.id, Reset::Cancel).await;
        }
    }

    /// Resolves when the client has reset the stream, or the connection has ended.
    pub(crate) async fn closed(&self) {
        self.reset.cancelled().await;
    }
}

impl Drop for Outlet {
    fn drop(&mut self) {
        self.connection.released(self.id);
    }
}
