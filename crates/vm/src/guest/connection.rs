//! A connection: a task reads, and callers write in turn.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use agent_api::{Answer, Call, Decoder, Failure, Hello, Reply, Request, encode};
use serde::de::DeserializeOwned;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::{oneshot, watch},
};

use super::{Error, ErrorKind};
use crate::error::printable;

const READ_SIZE: usize = 64 << 10;
/// Largest frame of an agent: its answers are short.
const ANSWER_MAX: usize = 64 << 10;
/// Most answers that nobody waits for: callers stop waiting, but not this often.
const UNWANTED_MAX: u32 = 1024;

type Outcome = Result<Result<Reply, Failure>, Error>;

/// A connection to an agent. Dropping it closes it.
pub(super) struct Connection {
    calls: Mutex<HashMap<u64, oneshot::Sender<Outcome>>>,
    next_call: AtomicU64,
    writer: tokio::sync::Mutex<OwnedWriteHalf>,
    closed: watch::Sender<bool>,
    last_received: Mutex<Instant>,
}

impl Connection {
    /// Returns the connection and what resolves to the introduction of the agent.
    pub(super) fn open(socket: UnixStream) -> (Arc<Self>, impl Future<Output = Result<Hello, Error>>) {
        let (reader, writer) = socket.into_split();
        let connection = Arc::new(Self {
            calls: Mutex::default(),
            next_call: AtomicU64::new(1),
            writer: tokio::sync::Mutex::new(writer),
            closed: watch::Sender::new(false),
            last_received: Mutex::new(Instant::now()),
        });
        let (sender, hello) = oneshot::channel();
        let (weak, mut closed) = (Arc::downgrade(&connection), connection.closed.subscribe());
        tokio::spawn(async move {
            let mut frames = Frames { reader, decoder: Decoder::with_limit(ANSWER_MAX) };
            let read = async {
                let hello = frames.next().await;
                let is_valid = hello.is_ok();
                if sender.send(hello).is_err() || !is_valid {
                    return gone();
                }
                let mut unwanted = 0;
                loop {
                    let answer: Result<Answer, Error> = frames.next().await;
                    match (answer, weak.upgrade()) {
                        (Ok(answer), Some(connection)) => {
                            // One that arrives too late is not wanted anymore: those of a guest that was paused are many.
                            unwanted = if connection.deliver(answer) { 0 } else { unwanted + 1 };
                            if unwanted > UNWANTED_MAX {
                                return Error::new(ErrorKind::Protocol, "", "it answers what was not requested");
                            }
                        }
                        (Err(error), _) => return error,
                        (_, None) => return gone(),
                    }
                }
            };
            let error = tokio::select! {
                error = read => error,
                // Its last user is gone, or a request could not be written.
                _ = closed.wait_for(|closed| *closed) => gone(),
            };
            if let Some(connection) = weak.upgrade() {
                connection.close(&error);
            }
        });
        let hello = async move { hello.await.unwrap_or_else(|_| Err(gone())) };
        (connection, hello)
    }

    /// Closes the connection and fails all calls.
    pub(super) fn end(&self) {
        self.close(&gone());
    }

    pub(super) fn is_closed(&self) -> bool {
        *self.closed.borrow()
    }

    pub(super) async fn closed(&self) {
        let _ = self.closed.subscribe().wait_for(|closed| *closed).await;
    }

    /// Sends a request and waits for its answer; for at most `timeout`, if there is one.
    pub(super) async fn call(&self, request: Request, timeout: Option<Duration>) -> Outcome {
        let id = self.next_call.fetch_add(1, Ordering::Relaxed);
        let frame =
            encode(&Call { id, request }).map_err(|error| Error::new(ErrorKind::Invalid, "", error.to_string()))?;
        let (sender, answer) = oneshot::channel();
        let pending = PendingCall { connection: self, id };
        self.calls().insert(id, sender);
        if self.is_closed() {
            return Err(gone());
        }
        let work = async {
            self.write(&frame).await?;
            answer.await.unwrap_or_else(|_| Err(gone()))
        };
        let outcome = match timeout {
            None => work.await,
            Some(timeout) => tokio::time::timeout(timeout, work).await.unwrap_or_else(|_| {
                let cause = format!("the agent in the guest has not answered for {} s", timeout.as_secs_f32());
                Err(Error::new(ErrorKind::Timeout, "", cause))
            }),
        };
        drop(pending);
        outcome
    }

    /// Writes a frame whole. If the caller stops waiting in the middle, the connection is of no use anymore.
    async fn write(&self, frame: &[u8]) -> Result<(), Error> {
        let mut writer = self.writer.lock().await;
        let unfinished = CloseUnlessDisarmed(Some(&self.closed));
        writer.write_all(frame).await.map_err(|error| Error::new(ErrorKind::Gone, "", error.to_string()))?;
        unfinished.disarm();
        Ok(())
    }

    /// Returns when the last answer, or the introduction, arrived.
    pub(super) fn last_received(&self) -> Instant {
        *self.last_received.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that something arrived.
    pub(super) fn mark_received(&self) {
        *self.last_received.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// Returns whether somebody waits for it.
    fn deliver(&self, answer: Answer) -> bool {
        self.mark_received();
        let call = self.calls().remove(&answer.id);
        call.is_some_and(|call| call.send(Ok(answer.result)).is_ok())
    }

    fn close(&self, error: &Error) {
        self.closed.send_replace(true);
        let calls = std::mem::take(&mut *self.calls());
        calls.into_values().for_each(|call| drop(call.send(Err(error.clone()))));
    }

    fn calls(&self) -> MutexGuard<'_, HashMap<u64, oneshot::Sender<Outcome>>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.closed.send_replace(true);
    }
}

/// A call that is forgotten when its caller does not wait anymore.
struct PendingCall<'a> {
    connection: &'a Connection,
    id: u64,
}

impl Drop for PendingCall<'_> {
    fn drop(&mut self) {
        self.connection.calls().remove(&self.id);
    }
}

/// Closes the connection when it is dropped in the middle of a frame.
struct CloseUnlessDisarmed<'a>(Option<&'a watch::Sender<bool>>);

impl CloseUnlessDisarmed<'_> {
    fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for CloseUnlessDisarmed<'_> {
    fn drop(&mut self) {
        if let Some(closed) = self.0 {
            closed.send_replace(true);
        }
    }
}

/// What arrives.
struct Frames {
    reader: OwnedReadHalf,
    decoder: Decoder,
}

impl Frames {
    async fn next<T: DeserializeOwned>(&mut self) -> Result<T, Error> {
        let mut buffer = vec![0; READ_SIZE];
        loop {
            let frame = self.decoder.take_frame();
            if let Some(frame) =
                frame.map_err(|error| Error::new(ErrorKind::Protocol, "", printable(&error.to_string())))?
            {
                return Ok(frame);
            }
            match self.reader.read(&mut buffer).await {
                Ok(0) => return Err(gone()),
                Ok(n) => self.decoder.push(&buffer[..n]),
                Err(error) => return Err(Error::new(ErrorKind::Gone, "", error.to_string())),
            }
        }
    }
}

fn gone() -> Error {
    Error::new(ErrorKind::Gone, "", "the connection to the agent in the guest is closed")
}
