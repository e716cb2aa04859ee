//! A connection as the server has it.
//!
//! ```text
//!                ┌────────── run() ──────────┐
//!  client ─────▶ │ frames ─▶ data ─▶ inboxes │ ─▶ who consumes a stream ─ Credit ─┐
//!                │        ─▶ offers ─────────│ ─▶ Acceptor ─ SYN_REPLY ─▶ Link    │
//!  client ◀───── │ ◀─ answers, pings, credit │ ◀──────────────────────────────────┘
//!                └───────────────────────────┘      Outlet ─ data ─▶ Link ─▶ client
//! ```
//!
//! When an inbox is full, the connection is not read until it has room: the peers of this world heed no windows, so
//! that is the only way to have them wait without growing. Where streams are independent of each other
//! ([`Limits::stall`]), one that holds up others for too long is reset.

use std::{
    collections::HashMap,
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
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
    Acceptor, Deflater, Offer,
    decoder::{self, Decoder, Malformed},
    frame::{self, Frame, HEAD, Head, Reset},
    window::{self, INITIAL, Window},
};
use crate::{
    channel::{PIECE, PIECES},
    link::{Gone, Link, Standing},
};

/// Most answers that wait to be written.
const ANSWERS: usize = 64;
/// How often the peer is asked whether it is there.
const PING: Duration = Duration::from_secs(30);
/// How long a peer that sends nonsense may take to hear of it.
const GOODBYE: Duration = Duration::from_secs(1);
/// So much is received before the peer may send so much more on the whole connection.
const CREDIT: usize = 32 * 1024;

/// What a connection may have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Streams at once; more are refused.
    pub(crate) streams: usize,
    /// How long a stream may hold up others before it is reset; `None`: they belong together and wait for each other.
    pub(crate) stall: Option<Duration>,
}

/// See the module.
pub(crate) struct Connection {
    link: Link,
    limits: Limits,
    answers: mpsc::Sender<Vec<u8>>,
    state: Mutex<State>,
    /// A window was opened, or a stream ended.
    opened: Notify,
}

struct State {
    streams: HashMap<u32, Entry>,
    last: u32,
    window: Window,
    initial: i64,
    /// The peer has windows.
    obeyed: bool,
}

struct Entry {
    /// `None`: the client sends no more.
    inbox: Option<mpsc::Sender<Bytes>>,
    reset: CancellationToken,
    window: Window,
    finished: bool,
    released: bool,
}

/// Starts on a connection: what answers its streams, and what must be run for anything to happen. The latter ends with
/// the connection, which is over then.
pub(crate) fn connect(
    reader: impl AsyncRead + Send + Unpin,
    writer: impl AsyncWrite + Send + Unpin + 'static,
    limits: Limits,
    standing: Standing,
) -> (Acceptor, impl Future<Output = ()> + Send) {
    let (answers, to_write) = mpsc::channel(ANSWERS);
    let (offering, offers) = mpsc::channel(4);
    let state = State { streams: HashMap::new(), last: 0, window: Window(INITIAL), initial: INITIAL, obeyed: false };
    let link = Link::new(writer, standing);
    let connection = Arc::new(Connection { link, limits, answers, state: Mutex::new(state), opened: Notify::new() });
    let acceptor = Acceptor { offers, deflater: Deflater::default(), connection: Arc::clone(&connection) };
    let run = async move {
        let read = Reading { connection: Arc::clone(&connection), offering, decoder: Decoder::default(), received: 0 };
        tokio::select! {
            () = read.run(reader) => {}
            () = connection.write_answers(to_write) => {}
            () = connection.ask() => {}
            () = connection.link.over().cancelled() => {}
        }
        connection.end();
    };
    (acceptor, run)
}

impl Connection {
    pub(crate) fn link(&self) -> &Link {
        &self.link
    }

    /// Last words: no stream is taken any more, nothing follows.
    pub(crate) async fn say_goodbye(&self) {
        let last = self.state().last;
        // A client that left needs none.
        let _ = self.link.write(&frame::go_away(last, false), &[]).await;
        self.link.shutdown().await;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a frame written soon; false: too many wait.
    pub(super) fn tell(&self, frame: Vec<u8>) -> bool {
        self.answers.try_send(frame).is_ok()
    }

    pub(super) async fn reset(&self, id: u32, why: Reset) {
        self.forget(id);
        let _ = self.answers.send(frame::rst_stream(id, why)).await;
    }

    /// Ends a stream on this side.
    fn forget(&self, id: u32) {
        if let Some(entry) = self.state().streams.remove(&id) {
            entry.reset.cancel();
        }
        self.opened.notify_waiters();
    }

    /// We sent our last of it.
    pub(super) fn finished(&self, id: u32) {
        let mut state = self.state();
        if let Some(entry) = state.streams.get_mut(&id) {
            entry.finished = true;
            if entry.inbox.is_none() {
                state.streams.remove(&id);
            }
        }
    }

    /// Nobody here writes it any more.
    pub(super) fn released(&self, id: u32) {
        if let Some(entry) = self.state().streams.get_mut(&id) {
            entry.released = true;
        }
    }

    /// How much of it may be sent now.
    pub(super) async fn take_window(&self, id: u32, wanted: usize) -> Result<usize, Gone> {
        loop {
            let opened = self.opened.notified();
            tokio::pin!(opened);
            opened.as_mut().enable();
            {
                let mut state = self.state();
                let State { streams, window, obeyed, .. } = &mut *state;
                let Some(entry) = streams.get_mut(&id) else { return Err(Gone) };
                let taken = window::take(window, &mut entry.window, wanted, *obeyed);
                if taken > 0 {
                    return Ok(taken);
                }
            }
            tokio::select! {
                () = opened => {}
                () = self.link.over().cancelled() => return Err(Gone),
            }
        }
    }

    async fn write_answers(&self, mut answers: mpsc::Receiver<Vec<u8>>) {
        while let Some(frame) = answers.recv().await {
            if self.link.write(&frame, &[]).await.is_err() {
                return;
            }
        }
    }

    /// A peer that is gone cannot be written to; that is how it is noticed while it is not read from.
    async fn ask(&self) {
        for id in (2..u32::MAX).step_by(2) {
            sleep(PING).await;
            let _ = self.answers.send(frame::ping(id)).await;
        }
    }

    fn end(&self) {
        self.link.over().cancel();
        for (_, entry) in self.state().streams.drain() {
            entry.reset.cancel();
        }
        self.opened.notify_waiters();
    }
}

/// What reads a connection.
struct Reading {
    connection: Arc<Connection>,
    offering: mpsc::Sender<Offer>,
    decoder: Decoder,
    received: usize,
}

/// Why reading ends.
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

impl Reading {
    async fn run(mut self, reader: impl AsyncRead + Send + Unpin) {
        let mut reader = BufReader::with_capacity(PIECE, reader);
        if let Err(End::Malformed(malformed)) = self.frames(&mut reader).await {
            tracing::debug!("end a SPDY connection: {malformed}");
            let last = self.connection.state().last;
            let goodbye = frame::go_away(last, true);
            let _ = timeout(GOODBYE, self.connection.link.write(&goodbye, &[])).await;
        }
    }

    async fn frames(&mut self, reader: &mut (impl AsyncRead + Send + Unpin)) -> Result<(), End> {
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
        let (mut left, mut opened) = (length, 0);
        while left > 0 {
            let mut piece = vec![0; left.min(PIECE)];
            reader.read_exact(&mut piece).await?;
            left -= piece.len();
            opened += piece.len();
            self.deliver(stream, piece.into()).await;
        }
        self.received += opened;
        if self.received >= CREDIT && self.connection.tell(frame::window_update(0, self.received as u32)) {
            self.received = 0;
        }
        if fin {
            self.no_more(stream);
        }
        if length > 0 && stream > self.connection.state().last {
            let _ = self.connection.answers.send(frame::rst_stream(stream, Reset::InvalidStream)).await;
        }
        Ok(())
    }

    /// Hands a piece to who consumes the stream; where nobody does, it is dropped.
    async fn deliver(&self, id: u32, piece: Bytes) {
        let Some(inbox) = self.connection.state().streams.get(&id).and_then(|entry| entry.inbox.clone()) else {
            return;
        };
        let piece = match inbox.try_send(piece) {
            Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => return,
            Err(mpsc::error::TrySendError::Full(piece)) => piece,
        };
        let reset = self.connection.state().streams.get(&id).map(|entry| entry.reset.clone());
        let ended = async {
            match reset {
                Some(reset) => reset.cancelled().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = inbox.send(piece) => {}
            () = ended => {}
            () = self.connection.link.left() => self.connection.link.over().cancel(),
            () = self.stalled() => {
                tracing::debug!(stream = id, "reset a stream that holds up others");
                self.connection.reset(id, Reset::FlowControlError).await;
            }
        }
    }

    /// Resolves when a stream holds up others for too long.
    async fn stalled(&self) {
        let Some(limit) = self.connection.limits.stall else { return std::future::pending().await };
        loop {
            sleep(limit).await;
            // A data stream and an error stream are one connection.
            if self.connection.state().streams.values().filter(|entry| entry.inbox.is_some()).count() > 1 {
                return;
            }
        }
    }

    /// The client sends no more of a stream.
    fn no_more(&self, id: u32) {
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
            Frame::Headers { stream, fin: true } => self.no_more(stream),
            Frame::Ping { id } if id % 2 == 1 => {
                let _ = self.connection.answers.send(frame::ping(id)).await;
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

    async fn open(&mut self, id: u32, fin: bool, unidirectional: bool, headers: super::Headers) -> Result<(), End> {
        let (sender, inbox) = mpsc::channel(PIECES);
        let reset = CancellationToken::new();
        let room = {
            let mut state = self.connection.state();
            if id.is_multiple_of(2) || id <= state.last {
                return Err(Malformed("a stream whose id is not its to use").into());
            }
            state.last = id;
            if state.streams.len() >= self.connection.limits.streams {
                // What was left by both sides in all but word.
                state
                    .streams
                    .retain(|_, entry| !(entry.released && entry.inbox.as_ref().is_none_or(mpsc::Sender::is_closed)));
            }
            let room = state.streams.len() < self.connection.limits.streams && !unidirectional;
            if room {
                let window = Window(state.initial);
                let inbox = (!fin).then_some(sender);
                let entry = Entry { inbox, reset: reset.clone(), window, finished: false, released: false };
                state.streams.insert(id, entry);
            }
            room
        };
        if !room {
            let _ = self.connection.answers.send(frame::rst_stream(id, Reset::Refused)).await;
            return Ok(());
        }
        // An acceptor that is gone takes no more: its session ends, and this with it.
        let _ = self.offering.send(Offer { id, headers, inbox, reset }).await;
        Ok(())
    }

    async fn resize_windows(&self, size: i64) -> Result<(), End> {
        {
            let mut state = self.connection.state();
            state.obeyed = true;
            let change = size - std::mem::replace(&mut state.initial, size);
            for entry in state.streams.values_mut() {
                entry.window.open(change).map_err(|_| Malformed("a window larger than there are"))?;
            }
        }
        self.connection.opened.notify_waiters();
        Ok(())
    }

    async fn open_window(&self, stream: u32, delta: i64) -> Result<(), End> {
        let overflown = {
            let mut state = self.connection.state();
            state.obeyed = true;
            match stream {
                0 => {
                    state.window.open(delta).map_err(|_| Malformed("a window larger than there are"))?;
                    false
                }
                id => state.streams.get_mut(&id).is_some_and(|entry| entry.window.open(delta).is_err()),
            }
        };
        if overflown {
            self.connection.reset(stream, Reset::FlowControlError).await;
        }
        self.connection.opened.notify_waiters();
        Ok(())
    }
}
