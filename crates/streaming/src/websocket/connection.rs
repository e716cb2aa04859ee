//! A connection as the server has it.

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
    channel::{Inbox, PIECE, PIECES},
    link::{Gone, Link, Standing},
};

/// Most answers that wait to be written.
const ANSWERS: usize = 64;
/// How often the client is asked whether it is there.
const ASK: Duration = Duration::from_secs(30);
/// How long a client may take to hear that it is left.
const GOODBYE: Duration = Duration::from_secs(1);
/// Normal closure, and a protocol error (RFC 6455, 7.4.1).
const NORMAL: u16 = 1000;
const PROTOCOL_ERROR: u16 = 1002;

/// See the module.
pub(crate) struct Connection {
    link: Link,
    codec: Codec,
    answers: mpsc::Sender<Vec<u8>>,
    inboxes: Mutex<HashMap<u8, mpsc::Sender<Bytes>>>,
}

/// Starts on a connection with these channels of the client's: what they bring, in the same order, and what must be run
/// for anything to happen. That ends with the connection, which is over then.
pub(crate) fn connect(
    reader: impl AsyncRead + Send + Unpin,
    writer: impl AsyncWrite + Send + Unpin + 'static,
    codec: Codec,
    channels: &[u8],
    standing: Standing,
) -> (Arc<Connection>, Vec<Inbox>, impl Future<Output = ()> + Send) {
    let (answers, to_write) = mpsc::channel(ANSWERS);
    let mut senders = HashMap::new();
    let mut inboxes = Vec::new();
    for channel in channels {
        let (sender, inbox) = mpsc::channel(PIECES);
        senders.insert(*channel, sender);
        inboxes.push(Inbox::new(inbox, None));
    }
    let connection = Connection { link: Link::new(writer, standing), codec, answers, inboxes: Mutex::new(senders) };
    let connection = Arc::new(connection);
    let running = Arc::clone(&connection);
    let run = async move {
        tokio::select! {
            () = running.read(reader) => {}
            () = running.write_answers(to_write) => {}
            () = running.ask() => {}
            () = running.link.over().cancelled() => {}
        }
        running.link.over().cancel();
        running.inboxes().clear();
    };
    (connection, inboxes, run)
}

impl Connection {
    pub(crate) fn link(&self) -> &Link {
        &self.link
    }

    /// Where a channel to the client is written.
    pub(crate) fn outlet(self: &Arc<Self>, channel: u8) -> Outlet {
        Outlet { channel, connection: Arc::clone(self) }
    }

    /// Last words.
    pub(crate) async fn say_goodbye(&self) {
        // A client that left needs none.
        let _ = self.link.write(&frame::whole(CLOSE, &NORMAL.to_be_bytes()), &[]).await;
        self.link.shutdown().await;
    }

    fn inboxes(&self) -> std::sync::MutexGuard<'_, HashMap<u8, mpsc::Sender<Bytes>>> {
        self.inboxes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn write_answers(&self, mut answers: mpsc::Receiver<Vec<u8>>) {
        while let Some(frame) = answers.recv().await {
            if self.link.write(&frame, &[]).await.is_err() {
                return;
            }
        }
    }

    /// A client that is gone cannot be written to; that is how it is noticed while it is not read from.
    async fn ask(&self) {
        loop {
            sleep(ASK).await;
            let _ = self.answers.send(frame::whole(PING, &[])).await;
        }
    }

    async fn read(&self, mut reader: impl AsyncRead + Send + Unpin) {
        let mut demultiplexer = Demultiplexer::new(self.codec);
        let (mut buffer, mut events) = (vec![0; PIECE], Vec::new());
        while let Ok(length @ 1..) = reader.read(&mut buffer).await {
            self.link.touch();
            let pushed = demultiplexer.push(&buffer[..length], &mut events);
            for event in events.drain(..) {
                if let Event::Close(status) = event {
                    let _ = timeout(GOODBYE, self.link.write(&frame::whole(CLOSE, &status), &[])).await;
                    return;
                }
                self.take(event).await;
            }
            if let Err(malformed) = pushed {
                tracing::debug!("end a WebSocket connection: {malformed}");
                let goodbye = frame::whole(CLOSE, &PROTOCOL_ERROR.to_be_bytes());
                let _ = timeout(GOODBYE, self.link.write(&goodbye, &[])).await;
                return;
            }
        }
    }

    async fn take(&self, event: Event) {
        match event {
            Event::Piece(channel, piece) => {
                let Some(inbox) = self.inboxes().get(&channel).cloned() else { return };
                tokio::select! {
                    _ = inbox.send(piece) => {}
                    () = self.link.left() => self.link.over().cancel(),
                }
            }
            Event::End(channel) => drop(self.inboxes().remove(&channel)),
            Event::Ping(content) => {
                let _ = self.answers.send(frame::whole(PONG, &content)).await;
            }
            Event::Close(_) => {}
        }
    }
}

/// Where a channel to the client is written.
pub(crate) struct Outlet {
    channel: u8,
    connection: Arc<Connection>,
}

impl Outlet {
    /// Writes all of it, as one message; also nothing.
    pub(crate) async fn send(&mut self, data: &[u8]) -> Result<(), Gone> {
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

    /// Resolves when the connection is over.
    pub(crate) async fn refused(&self) {
        self.connection.link.over().cancelled().await;
    }
}
