//! The server's side of a WebSocket connection.

use std::{
    collections::HashMap,
    future::Future,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite},
    sync::mpsc,
    time::{sleep, timeout},
};

use super::{
    Codec, Demultiplexer, Event,
    frame::{self, BINARY, CLOSE, PING, PONG, TEXT},
};
use crate::{
    link::{Closed, Lifetime, Link},
    piece::{PIECE, PIECES},
};

/// Maximum number of replies that are queued for writing.
const REPLIES_MAX: usize = 64;
/// Interval of pings, which detect a client that is gone.
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// How long writing the final close frame may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// Status codes of a normal closure and of a protocol error (RFC 6455, 7.4.1).
const NORMAL: u16 = 1000;
const PROTOCOL_ERROR: u16 = 1002;

/// The shared state of a connection.
pub(crate) struct Connection {
    link: Link,
    codec: Codec,
    replies: mpsc::Sender<Vec<u8>>,
    inboxes: Mutex<HashMap<u8, mpsc::Sender<Bytes>>>,
}

/// Sets a connection up. `channels` are the channels that the client sends; their inboxes are returned in the same
/// order. The returned future drives the connection and completes when it ends.
pub(crate) fn connect(
    reader: impl AsyncRead + Send + Unpin,
    writer: impl AsyncWrite + Send + Unpin + 'static,
    codec: Codec,
    channels: &[u8],
    lifetime: Lifetime,
) -> (Arc<Connection>, Vec<mpsc::Receiver<Bytes>>, impl Future<Output = ()> + Send) {
    let (replies, to_write) = mpsc::channel(REPLIES_MAX);
    let mut senders = HashMap::new();
    let mut inboxes = Vec::new();
    for channel in channels {
        let (sender, inbox) = mpsc::channel(PIECES);
        senders.insert(*channel, sender);
        inboxes.push(inbox);
    }
    let connection = Connection { link: Link::new(writer, lifetime), codec, replies, inboxes: Mutex::new(senders) };
    let connection = Arc::new(connection);
    let driven = Arc::clone(&connection);
    let run = async move {
        tokio::select! {
            () = driven.read(reader) => {}
            () = driven.write_replies(to_write) => {}
            () = driven.ping() => {}
            () = driven.link.closed().cancelled() => {}
        }
        driven.link.closed().cancel();
        driven.inboxes().clear();
    };
    (connection, inboxes, run)
}

impl Connection {
    pub(crate) fn link(&self) -> &Link {
        &self.link
    }

    /// Returns the sending end of a channel.
    pub(crate) fn outlet(self: &Arc<Self>, channel: u8) -> Outlet {
        Outlet { channel, connection: Arc::clone(self) }
    }

    /// Sends a close frame, and shuts the connection's write half down.
    pub(crate) async fn close(&self) {
        // This fails if the client has disconnected.
        let _ = self.link.write(&frame::encode(CLOSE, &NORMAL.to_be_bytes()), &[]).await;
        self.link.shutdown().await;
    }

    fn inboxes(&self) -> std::sync::MutexGuard<'_, HashMap<u8, mpsc::Sender<Bytes>>> {
        self.inboxes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn write_replies(&self, mut replies: mpsc::Receiver<Vec<u8>>) {
        while let Some(frame) = replies.recv().await {
            if self.link.write(&frame, &[]).await.is_err() {
                return;
            }
        }
    }

    /// Sends pings. Writing fails if the client is gone, which is detected this way while the connection is not read.
    async fn ping(&self) {
        loop {
            sleep(PING_INTERVAL).await;
            let _ = self.replies.send(frame::encode(PING, &[])).await;
        }
    }

    async fn read(&self, mut reader: impl AsyncRead + Send + Unpin) {
        let mut demultiplexer = Demultiplexer::new(self.codec);
        let (mut buffer, mut events) = (vec![0; PIECE], Vec::new());
        while let Ok(length @ 1..) = reader.read(&mut buffer).await {
            self.link.touch();
            let outcome = demultiplexer.push(&buffer[..length], &mut events);
            for event in events.drain(..) {
                if let Event::Close(status) = event {
                    let _ = timeout(CLOSE_TIMEOUT, self.link.write(&frame::encode(CLOSE, &status), &[])).await;
                    return;
                }
                self.handle(event).await;
            }
            if let Err(malformed) = outcome {
                tracing::debug!("closing a WebSocket connection: {malformed}");
                let close = frame::encode(CLOSE, &PROTOCOL_ERROR.to_be_bytes());
                let _ = timeout(CLOSE_TIMEOUT, self.link.write(&close, &[])).await;
                return;
            }
        }
    }

    async fn handle(&self, event: Event) {
        match event {
            Event::Piece(channel, piece) => {
                let Some(inbox) = self.inboxes().get(&channel).cloned() else { return };
                tokio::select! {
                    _ = inbox.send(piece) => {}
                    () = self.link.disconnected() => self.link.closed().cancel(),
                }
            }
            Event::End(channel) => drop(self.inboxes().remove(&channel)),
            Event::Ping(content) => {
                let _ = self.replies.send(frame::encode(PONG, &content)).await;
            }
            Event::Close(_) => {}
        }
    }
}

/// The sending end of a channel.
pub(crate) struct Outlet {
    channel: u8,
    connection: Arc<Connection>,
}

impl Outlet {
    /// Sends the data as one message, even if it is empty.
    pub(crate) async fn send(&mut self, data: &[u8]) -> Result<(), Closed> {
        let link = &self.connection.link;
        match self.connection.codec {
            Codec::Raw => link.write(&frame::head(BINARY, data.len()), data).await,
            Codec::Binary { .. } => {
                let mut head = frame::head(BINARY, data.len() + 1);
                head.push(self.channel);
                link.write(&head, data).await
            }
            Codec::Base64 => {
                let text = STANDARD.encode(data);
                let mut head = frame::head(TEXT, text.len() + 1);
                head.push(b'0' + self.channel);
                link.write(&head, text.as_bytes()).await
            }
        }
    }

    /// Resolves when the connection has ended.
    pub(crate) async fn closed(&self) {
        self.connection.link.closed().cancelled().await;
    }
}
