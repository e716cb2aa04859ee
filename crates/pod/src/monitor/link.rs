//! One connection to one monitor: requests out, each with its replies by number; events in.

use std::{
    collections::HashMap,
    future::poll_fn,
    os::fd::{AsFd, AsRawFd, RawFd},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use monitor_api::{
    Attachments, CodecError, Connection, Envelope, Event, Failure, Holding, MAJOR, MINOR, Reply, Request, Welcome,
};
use readiness::{Room, watch};
use telemetry::Gauge;
use tokio::{
    io::{Interest, unix::AsyncFd},
    sync::{mpsc, watch},
};
use tracing::{Instrument, debug_span};

use super::figures::{MONITOR_REQUESTS, MonitorFigures, kind};
use crate::{Error, ErrorKind, session::close_attachments};

const PATIENCE: Patience = Patience { send: Duration::from_secs(10), answer: Duration::from_secs(60) };
/// The first answer of a monitor that may just be starting.
const HELLO: Duration = Duration::from_secs(10);

pub(super) type Answer = (Result<Reply, Failure>, Attachments);

/// How long a request waits for a monitor that hangs.
#[derive(Debug, Clone, Copy)]
struct Patience {
    /// The socket may have no room for so long. A request that waits holds its descriptors.
    send: Duration,
    /// A monitor that does not answer for so long is taken for hung.
    answer: Duration,
}

/// See the module.
pub(crate) struct Link {
    socket: AsyncFd<Socket>,
    /// Who waits for which number; `None` when the connection is over.
    pending: Mutex<Option<HashMap<u64, mpsc::UnboundedSender<Answer>>>>,
    next: AtomicU64,
    turn: tokio::sync::Mutex<()>,
    over: watch::Sender<bool>,
    figures: Arc<MonitorFigures>,
    patience: Patience,
}

struct Socket(Connection);

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

impl Link {
    /// Says hello; the other side must speak our major version. Must be called within a runtime.
    pub(crate) async fn open(
        connection: Connection,
        events: mpsc::UnboundedSender<Event>,
        figures: Arc<MonitorFigures>,
    ) -> Result<(Arc<Self>, Welcome), Error> {
        let link = Self::attach(connection, figures, PATIENCE)?;
        tokio::spawn(Arc::clone(&link).read(events));
        let hello = link.ask(Request::Hello { major: MAJOR, minor: MINOR }, Attachments::new());
        match tokio::time::timeout(HELLO, hello).await {
            Ok(Ok((Reply::Welcome(welcome), _))) => Ok((link, welcome)),
            Ok(Ok((other, _))) => Err(unexpected("Hello", &other)),
            Ok(Err(error)) => Err(error.during("greet the monitor")),
            Err(_) => Err(Error::unavailable("greet the monitor: it does not answer")),
        }
    }

    /// Takes over a connected socket; nothing is sent and nothing is read yet.
    fn attach(connection: Connection, figures: Arc<MonitorFigures>, patience: Patience) -> Result<Arc<Self>, Error> {
        let broken = |e: &dyn std::fmt::Display| Error::unavailable(format!("connect to the monitor: {e}"));
        rustix::io::ioctl_fionbio(&connection, true).map_err(|e| broken(&e))?;
        Ok(Arc::new(Self {
            // Not for room to write: each request that the monitor takes is room.
            socket: watch(Socket(connection), Interest::READABLE).map_err(|e| broken(&e))?,
            pending: Mutex::new(Some(HashMap::new())),
            next: AtomicU64::new(1),
            turn: tokio::sync::Mutex::new(()),
            over: watch::Sender::new(false),
            figures,
            patience,
        }))
    }

    /// One request, one reply.
    pub(crate) async fn ask(&self, request: Request, attachments: Attachments) -> Result<(Reply, Attachments), Error> {
        let (reply, attachments) = self.try_ask(request, attachments).await?;
        Ok((reply?, attachments))
    }

    /// The same, where the caller looks at what class of failure it is.
    pub(super) async fn try_ask(&self, request: Request, attachments: Attachments) -> Result<Answer, Error> {
        let figures = &self.figures;
        let (which, began, _waiting) = (kind(&request), Instant::now(), Gauge::hold(&figures.waiting));
        let answer = async {
            let mut answers = self.send(request, attachments).await?;
            answers.next().await
        };
        let answer = answer.instrument(debug_span!("monitor", request = MONITOR_REQUESTS[which])).await;
        match &answer {
            Ok(_) => figures.round_trip.observe(began.elapsed()),
            Err(_) => figures.unanswered.add(1),
        }
        answer
    }

    /// What the monitor holds, with the descriptors.
    pub(crate) async fn inventory(&self) -> Result<Vec<(Holding, Attachments)>, Error> {
        let mut answers = self.send(Request::Inventory, Attachments::new()).await?;
        let mut held = Vec::new();
        loop {
            match answers.next().await? {
                (Ok(Reply::Holding(holding)), attachments) => held.push((*holding, attachments)),
                (Ok(Reply::Done), _) => return Ok(held),
                (Ok(other), _) => return Err(unexpected("Inventory", &other)),
                (Err(failure), _) => return Err(failure.into()),
            }
        }
    }

    /// Resolves when the connection is over.
    pub(crate) async fn closed(&self) {
        // The sender lives in self, so this fails never.
        let _ = self.over.subscribe().wait_for(|over| *over).await;
    }

    /// Ends the connection.
    pub(super) fn close(&self) {
        // It may be over already.
        let _ = rustix::net::shutdown(&self.socket.get_ref().0, rustix::net::Shutdown::Both);
    }

    pub(super) fn is_over(&self) -> bool {
        *self.over.borrow()
    }

    /// Sends a request within [`Patience::send`]. The replies end with the returned value, also when its caller gives
    /// up.
    async fn send(&self, request: Request, attachments: Attachments) -> Result<Replies<'_>, Error> {
        self.figures.requests[kind(&request)].add(1);
        let seq = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = mpsc::unbounded_channel();
        match self.pending.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            Some(pending) => pending.insert(seq, sender),
            None => return Err(lost()),
        };
        let replies = Replies { link: self, seq, receiver };
        let envelope = Envelope::Request { seq, body: Box::new(request), roles: Vec::new() };
        let sent = async {
            // One sender at a time: the room that was seen is still there.
            let _turn = self.turn.lock().await;
            let mut room = Room::default();
            poll_fn(|context| room.poll(&self.socket.get_ref().0, context)).await;
            let sent = self.socket.get_ref().0.send(envelope, &attachments);
            close_attachments(attachments);
            match sent {
                Ok(()) => Ok(()),
                Err(CodecError::Closed) => Err(lost()),
                Err(error) => Err(Error::internal(format!("send a request to the monitor: {error}"))),
            }
        };
        match tokio::time::timeout(self.patience.send, sent).await {
            Ok(sent) => sent.map(|()| replies),
            Err(_) => Err(hung("takes no request", self.patience.send)),
        }
    }

    fn forget(&self, seq: u64) {
        if let Some(pending) = self.pending.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            pending.remove(&seq);
        }
    }

    async fn read(self: Arc<Self>, events: mpsc::UnboundedSender<Event>) {
        loop {
            let Ok(mut guard) = self.socket.readable().await else { break };
            match self.socket.get_ref().0.receive() {
                Ok((envelope, attachments)) => self.dispatch(envelope, attachments, &events),
                Err(CodecError::WouldBlock) => guard.clear_ready(),
                Err(CodecError::Malformed(why)) => tracing::warn!("a frame from the monitor was left out: {why}"),
                Err(CodecError::Closed) => break,
                Err(error) => {
                    tracing::warn!("read from the monitor: {error}");
                    break;
                }
            }
        }
        // Whoever waits learns it by the end of its channel.
        self.pending.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.over.send_replace(true);
    }

    fn dispatch(&self, envelope: Envelope, attachments: Attachments, events: &mpsc::UnboundedSender<Event>) {
        match envelope {
            // The engine ended: nobody is there to hear it, the next one asks for the inventory.
            Envelope::Event(event) => drop(events.send(event)),
            Envelope::Reply { seq, body, .. } => {
                let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
                let Some(pending) = pending.as_mut() else { return };
                let more = matches!(body, Ok(Reply::Holding(_)));
                let waiting = if more { pending.get(&seq).cloned() } else { pending.remove(&seq) };
                if let Some(waiting) = waiting {
                    let _ = waiting.send((body, attachments));
                }
            }
            Envelope::Request { .. } => tracing::warn!("the monitor sent a request: left out"),
        }
    }
}

/// The replies to one request. Dropping it forgets the request.
struct Replies<'a> {
    link: &'a Link,
    seq: u64,
    receiver: mpsc::UnboundedReceiver<Answer>,
}

impl Replies<'_> {
    async fn next(&mut self) -> Result<Answer, Error> {
        let patience = self.link.patience.answer;
        match tokio::time::timeout(patience, self.receiver.recv()).await {
            Ok(Some(answer)) => Ok(answer),
            Ok(None) => Err(lost()),
            Err(_) => Err(hung("does not answer", patience)),
        }
    }
}

impl Drop for Replies<'_> {
    fn drop(&mut self) {
        self.link.forget(self.seq);
    }
}

fn hung(what: &str, time: Duration) -> Error {
    Error::new(ErrorKind::DeadlineExceeded, format!("the monitor {what} within {time:?}"))
}

fn lost() -> Error {
    Error::unavailable("the connection to the monitor was lost; it is being restored, try again")
}

pub(super) fn unexpected(request: &str, reply: &Reply) -> Error {
    let json = serde_json::to_string(reply).unwrap_or_default();
    let name = json.trim_matches(['{', '"']).split('"').next().unwrap_or_default().to_owned();
    Error::internal(format!("the monitor answered {request} with {name:?}"))
}

#[cfg(test)]
pub(super) mod tests;
