//! The server's side of a SPDY connection: sets it up, and reads its frames.
//!
//! ```text
//!                ┌────────── run() ──────────┐
//!  client ─────▶ │ frames ─▶ data ─▶ inboxes │ ─▶ consumer of a stream ─ Credit ──┐
//!                │        ─▶ offers ─────────│ ─▶ Acceptor ─ SYN_REPLY ─▶ Link    │
//!  client ◀───── │ ◀─ replies, pings, credit │ ◀──────────────────────────────────┘
//!                └───────────────────────────┘      Outlet ─ data ─▶ Link ─▶ client
//! ```
//!
//! While an inbox is full, the connection is not read: common peers do not obey windows, so this is the only way to
//! make them wait without unbounded buffers. If streams are independent of each other ([`Limits::stall`]), a stream
//! that blocks others for too long is reset.

use std::{
    collections::HashMap,
    future::Future,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, BufReader},
    sync::{Notify, mpsc},
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    connection::{Connection, Entry, Limits, State},
    decoder::{self, Decoder},
    frame::{self, Frame, HEAD, Head, Reset},
    headers::{Deflater, Headers},
    malformed::Malformed,
    stream::{Acceptor, Offer},
    window::{INITIAL, Window},
};
use crate::{
    link::{Lifetime, Link},
    piece::{PIECE, PIECES},
};

/// Maximum number of replies that are queued for writing.
const REPLIES_MAX: usize = 64;
/// How long writing the final GOAWAY to a misbehaving peer may take.
const GOAWAY_TIMEOUT: Duration = Duration::from_secs(1);
/// The connection's window is opened each time after this many bytes were received.
const CREDIT: usize = 32 * 1024;

/// Sets a connection up. Returns the acceptor of its streams, and the future that drives the connection and completes
/// when it ends.
pub(crate) fn connect(
    reader: impl AsyncRead + Send + Unpin,
    writer: impl AsyncWrite + Send + Unpin + 'static,
    limits: Limits,
    lifetime: Lifetime,
) -> (Acceptor, impl Future<Output = ()> + Send) {
    let (replies, to_write) = mpsc::channel(REPLIES_MAX);
    let (offering, offers) = mpsc::channel(4);
    let state =
        State { streams: HashMap::new(), last: 0, window: Window(INITIAL), initial: INITIAL, flow_controlled: false };
    let link = Link::new(writer, lifetime);
    let connection = Arc::new(Connection { link, limits, replies, state: Mutex::new(state), opened: Notify::new() });
    let acceptor = Acceptor { offers, deflater: Deflater::default(), connection: Arc::clone(&connection) };
    let run = async move {
        let receiver =
            Receiver { connection: Arc::clone(&connection), offering, decoder: Decoder::default(), received: 0 };
        tokio::select! {
            () = receiver.run(reader) => {}
            () = connection.write_replies(to_write) => {}
            () = connection.ping() => {}
            () = connection.link.closed().cancelled() => {}
        }
        connection.end();
    };
    (acceptor, run)
}

/// Reads frames from a connection.
struct Receiver {
    connection: Arc<Connection>,
    offering: mpsc::Sender<Offer>,
    decoder: Decoder,
    received: usize,
}

/// The reason why reading ends.
enum End {
    Malformed(Malformed),
    Closed,
}

impl From<Malformed> for End {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
}

impl From<std::io::Error> for End {
    fn from(_: std::io::Error) -> Self {
        Self::Closed
    }
}

impl Receiver {
    async fn run(mut self, reader: impl AsyncRead + Send + Unpin) {
        let mut reader = BufReader::with_capacity(PIECE, reader);
        if let Err(End::Malformed(malformed)) = self.read_frames(&mut reader).await {
            tracing::debug!("closing a SPDY connection: {malformed}");
            let last = self.connection.state().last;
            let goaway = frame::go_away(last, true);
            let _ = timeout(GOAWAY_TIMEOUT, self.connection.link.write(&goaway, &[])).await;
        }
    }

    async fn read_frames(&mut self, reader: &mut (impl AsyncRead + Send + Unpin)) -> Result<(), End> {
        let mut content = Vec::new();
        loop {
            let mut head = [0; HEAD];
            reader.read_exact(&mut head).await?;
            self.connection.link.touch();
            let head = Head::parse(head);
            decoder::check(&head)?;
            match head {
                Head::Data { stream, fin, length } => self.data(reader, stream, fin, length).await?,
                Head::Control { kind, flags, length, .. } => {
                    content.resize(length, 0);
                    reader.read_exact(&mut content).await?;
                    let frame = self.decoder.control(kind, flags, &content)?;
                    self.control(frame).await?;
                }
            }
        }
    }

    async fn data(
        &mut self,
        reader: &mut (impl AsyncRead + Send + Unpin),
        stream: u32,
        fin: bool,
        length: usize,
    ) -> Result<(), End> {
        let (mut remaining, mut opened) = (length, 0);
        while remaining > 0 {
            let mut piece = vec![0; remaining.min(PIECE)];
            reader.read_exact(&mut piece).await?;
            remaining -= piece.len();
            opened += piece.len();
            self.deliver(stream, piece.into()).await;
        }
        self.received += opened;
        if self.received >= CREDIT && self.connection.enqueue(frame::window_update(0, self.received as u32)) {
            self.received = 0;
        }
        if fin {
            self.end_input(stream);
        }
        if length > 0 && stream > self.connection.state().last {
            let _ = self.connection.replies.send(frame::rst_stream(stream, Reset::InvalidStream)).await;
        }
        Ok(())
    }

    /// Passes a piece to the consumer of its stream; drops it if nothing consumes the stream.
    async fn deliver(&self, id: u32, piece: Bytes) {
        let Some(inbox) = self.connection.state().streams.get(&id).and_then(|entry| entry.inbox.clone()) else {
            return;
        };
        let piece = match inbox.try_send(piece) {
            Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => return,
            Err(mpsc::error::TrySendError::Full(piece)) => piece,
        };
        let reset = self.connection.state().streams.get(&id).map(|entry| entry.reset.clone());
        let was_reset = async {
            match reset {
                Some(reset) => reset.cancelled().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = inbox.send(piece) => {}
            () = was_reset => {}
            () = self.connection.link.disconnected() => self.connection.link.closed().cancel(),
            () = self.stalled() => {
                tracing::debug!(stream = id, "reset a stream that blocks others");
                self.connection.reset(id, Reset::FlowControlError).await;
            }
        }
    }

    /// Resolves when a full inbox has blocked other streams for too long.
    async fn stalled(&self) {
        let Some(limit) = self.connection.limits.stall else { return std::future::pending().await };
        loop {
            sleep(limit).await;
            // One open input is the blocked stream itself; more are other connections of the client.
            if self.connection.state().streams.values().filter(|entry| entry.inbox.is_some()).count() > 1 {
                return;
            }
        }
    }

    /// Records that the client sends no more data of a stream.
    fn end_input(&self, id: u32) {
        let mut state = self.connection.state();
        if let Some(entry) = state.streams.get_mut(&id) {
            entry.inbox = None;
            if entry.finished {
                state.streams.remove(&id);
            }
        }
    }

    async fn control(&mut self, frame: Frame) -> Result<(), End> {
        match frame {
            Frame::SynStream { stream, fin, unidirectional, headers } => {
                self.open(stream, fin, unidirectional, headers).await?;
            }
            Frame::RstStream { stream, .. } => self.connection.forget(stream),
            Frame::Headers { stream, fin: true } => self.end_input(stream),
            Frame::Ping { id } if id % 2 == 1 => {
                let _ = self.connection.replies.send(frame::ping(id)).await;
            }
            Frame::Settings { initial_window: Some(size) } => self.resize_windows(i64::from(size)).await?,
            Frame::WindowUpdate { stream, delta } => self.open_window(stream, i64::from(delta)).await?,
            Frame::SynReply { .. }
            | Frame::Headers { .. }
            | Frame::Ping { .. }
            | Frame::Settings { .. }
            | Frame::GoAway
            | Frame::Data { .. }
            | Frame::Unknown => {}
        }
        Ok(())
    }

    async fn open(&mut self, id: u32, fin: bool, unidirectional: bool, headers: Headers) -> Result<(), End> {
        let (sender, inbox) = mpsc::channel(PIECES);
        let reset = CancellationToken::new();
        let accepted = {
            let mut state = self.connection.state();
            if id.is_multiple_of(2) || id <= state.last {
                return Err(Malformed("a stream with an id that it must not use").into());
            }
            state.last = id;
            if state.streams.len() >= self.connection.limits.streams {
                // Remove streams that neither side uses any longer, although they were not ended.
                state
                    .streams
                    .retain(|_, entry| !(entry.released && entry.inbox.as_ref().is_none_or(mpsc::Sender::is_closed)));
            }
            let accepted = state.streams.len() < self.connection.limits.streams && !unidirectional;
            if accepted {
                let window = Window(state.initial);
                let inbox = (!fin).then_some(sender);
                let entry = Entry { inbox, reset: reset.clone(), window, finished: false, released: false };
                state.streams.insert(id, entry);
            }
            accepted
        };
        if !accepted {
            let _ = self.connection.replies.send(frame::rst_stream(id, Reset::Refused)).await;
            return Ok(());
        }
        // This fails if the acceptor was dropped; then the session is ending, and this connection with it.
        let _ = self.offering.send(Offer { id, headers, inbox, reset }).await;
        Ok(())
    }

    async fn resize_windows(&self, size: i64) -> Result<(), End> {
        {
            let mut state = self.connection.state();
            state.flow_controlled = true;
            let change = size - std::mem::replace(&mut state.initial, size);
            for entry in state.streams.values_mut() {
                entry.window.open(change).map_err(|_| Malformed("a window that exceeds the maximum"))?;
            }
        }
        self.connection.opened.notify_waiters();
        Ok(())
    }

    async fn open_window(&self, stream: u32, delta: i64) -> Result<(), End> {
        let overflow = {
            let mut state = self.connection.state();
            state.flow_controlled = true;
            match stream {
                0 => {
                    state.window.open(delta).map_err(|_| Malformed("a window that exceeds the maximum"))?;
                    false
                }
                id => state.streams.get_mut(&id).is_some_and(|entry| entry.window.open(delta).is_err()),
            }
        };
        if overflow {
            self.connection.reset(stream, Reset::FlowControlError).await;
        }
        self.connection.opened.notify_waiters();
        Ok(())
    }
}
