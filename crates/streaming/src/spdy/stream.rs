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
use crate::{channel::Inbox, link::Gone};

/// As much is consumed before the peer is told that it may send so much more.
const CREDIT: usize = 32 * 1024;
/// Most bytes of a data frame of ours.
const FRAME_MAX: usize = 1 << 20;

/// A stream that waits for our answer.
pub(crate) struct Offer {
    pub(super) id: u32,
    pub(super) headers: Headers,
    pub(super) inbox: mpsc::Receiver<Bytes>,
    pub(super) reset: CancellationToken,
}

/// A stream.
pub(crate) struct Stream {
    pub(crate) inbox: Inbox,
    pub(crate) outlet: Outlet,
}

/// Answers streams as they are opened; the one place where headers are written.
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
    /// Whose streams they are.
    pub(crate) fn connection(&self) -> Arc<Connection> {
        Arc::clone(&self.connection)
    }

    /// The next stream; `None`: the connection is over.
    pub(crate) async fn next(&mut self) -> Option<Offer> {
        self.offers.recv().await
    }

    /// Takes it: the client sends from now on.
    pub(crate) async fn accept(&mut self, offer: Offer) -> Result<Stream, Gone> {
        let reply = frame::syn_reply(&mut self.deflater, offer.id);
        self.connection.link().write(&reply, &[]).await?;
        let credit = Credit { id: offer.id, consumed: 0, connection: Arc::clone(&self.connection) };
        let outlet =
            Outlet { id: offer.id, connection: Arc::clone(&self.connection), reset: offer.reset, finished: false };
        Ok(Stream { inbox: Inbox::new(offer.inbox, Some(credit)), outlet })
    }

    /// Does not take it.
    pub(crate) async fn refuse(&self, offer: Offer) {
        self.connection.reset(offer.id, Reset::Refused).await;
    }
}

/// Tells the peer what was consumed of its stream.
pub(crate) struct Credit {
    id: u32,
    consumed: usize,
    connection: Arc<Connection>,
}

impl Credit {
    pub(crate) fn consumed(&mut self, bytes: usize) {
        self.consumed += bytes;
        if self.consumed >= CREDIT && self.connection.tell(frame::window_update(self.id, self.consumed as u32)) {
            self.consumed = 0;
        }
    }
}

/// Where a stream is written.
pub(crate) struct Outlet {
    id: u32,
    connection: Arc<Connection>,
    reset: CancellationToken,
    finished: bool,
}

impl Outlet {
    /// Writes all of it, as far as the peer's windows are open.
    pub(crate) async fn send(&mut self, mut data: &[u8]) -> Result<(), Gone> {
        while !data.is_empty() {
            let length = self.connection.take_window(self.id, data.len().min(FRAME_MAX)).await?;
            let (now, later) = data.split_at(length);
            self.connection.link().write(&frame::data_head(self.id, false, length), now).await?;
            data = later;
        }
        Ok(())
    }

    /// The last of it was sent.
    pub(crate) async fn finish(&mut self) {
        if !std::mem::replace(&mut self.finished, true) && !self.reset.is_cancelled() {
            // A client that is gone needs no end.
            let _ = self.connection.link().write(&frame::data_head(self.id, true, 0), &[]).await;
            self.connection.finished(self.id);
        }
    }

    /// Ends it in both directions, now.
    pub(crate) async fn reset(&mut self) {
        if !std::mem::replace(&mut self.finished, true) && !self.reset.is_cancelled() {
            self.connection.reset(self.id, Reset::Cancel).await;
        }
    }

    /// Resolves when the client ended it in both directions, or the connection is over.
    pub(crate) async fn refused(&self) {
        self.reset.cancelled().await;
    }
}

impl Drop for Outlet {
    fn drop(&mut self) {
        self.connection.released(self.id);
    }
}
