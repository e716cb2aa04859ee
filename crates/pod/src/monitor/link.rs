//! One connection to a monitor: requests out, each matched with its replies by number; events in.

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
use readiness::{WriteReadiness, watch};
use telemetry::Gauge;
use tokio::{
    io::{Interest, unix::AsyncFd},
    sync::{mpsc, watch},
};
use tracing::{Instrument, debug_span};

use super::metrics::{MONITOR_REQUESTS, MonitorMetrics, kind};
use crate::{Error, ErrorKind, stdio::shared_pipe::close_attachments};

const TIMEOUTS: Timeouts = Timeouts { send: Duration::from_secs(10), answer: Duration::from_secs(60) };
/// Timeout for the first reply of a monitor, which may have just been started.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) type Answer = (Result<Reply, Failure>, Attachments);

/// Timeouts of a request to a monitor that hangs.
#[derive(Debug, Clone, Copy)]
struct Timeouts {
    /// How long the socket may have no room. A request that waits for room holds its descriptors.
    send: Duration,
    /// A monitor that does not reply for this long is considered hung.
    answer: Duration,
}

/// A connection to a monitor.
pub(crate) struct Link {
    socket: AsyncFd<Socket>,
    /// The requests that wait for replies, by number; `None` when the connection is closed.
    pending: Mutex<Option<HashMap<u64, mpsc::UnboundedSender<Answer>>>>,
    next: AtomicU64,
    send_lock: tokio::sync::Mutex<()>,
    closed: watch::Sender<bool>,
    metrics: Arc<MonitorMetrics>,
    timeouts: Timeouts,
}

struct Socket(Connection);

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

impl Link {
    /// Sends `Hello`; the monitor must use our major version of the contract. Must be called within a runtime.
    pub(crate) async fn open(
        connection: Connection,
        events: mpsc::UnboundedSender<Event>,
        metrics: Arc<MonitorMetrics>,
    ) -> Result<(Arc<Self>, Welcome), Error> {
        let link = Self::attach(connection, metrics, TIMEOUTS)?;
        tokio::spawn(Arc::clone(&link).read(events));
        let hello = link.request(Request::Hello { major: MAJOR, minor: MINOR }, Attachments::new());
        match tokio::time::timeout(HELLO_TIMEOUT, hello).await {
            Ok(Ok((Reply::Welcome(welcome), _))) => Ok((link, welcome)),
            Ok(Ok((other, _))) => Err(unexpected("Hello", &other)),
            Ok(Err(error)) => Err(error.during("send Hello to the monitor")),
            Err(_) => Err(Error::unavailable("send Hello to the monitor: it does not answer")),
        }
    }

    /// Wraps a connected socket; nothing is sent or read yet.
    fn attach(connection: Connection, metrics: Arc<MonitorMetrics>, timeouts: Timeouts) -> Result<Arc<Self>, Error> {
        let broken = |e: &dyn std::fmt::Display| Error::unavailable(format!("connect to the monitor: {e}"));
        rustix::io::ioctl_fionbio(&connection, true).map_err(|e| broken(&e))?;
        Ok(Arc::new(Self {
            // Not watched for room to write: each request that the monitor receives would be an event.
            socket: watch(Socket(connection), Interest::READABLE).map_err(|e| broken(&e))?,
            pending: Mutex::new(Some(HashMap::new())),
            next: AtomicU64::new(1),
            send_lock: tokio::sync::Mutex::new(()),
            closed: watch::Sender::new(false),
            metrics,
            timeouts,
        }))
    }

    /// Sends a request and returns its reply.
    pub(crate) async fn request(
        &self,
        request: Request,
        attachments: Attachments,
    ) -> Result<(Reply, Attachments), Error> {
        self.request_of_programs(request, attachments, Duration::ZERO).await
    }

    /// Like [`Self::request`], for a request whose programs of the node may take this long in total.
    pub(super) async fn request_of_programs(
        &self,
        request: Request,
        attachments: Attachments,
        programs: Duration,
    ) -> Result<(Reply, Attachments), Error> {
        let (reply, attachments) = self.answer(request, attachments, programs).await?;
        Ok((reply?, attachments))
    }

    /// Like [`Self::request`], but returns a failure reported by the monitor as a value, so that the caller can match
    /// its kind.
    pub(super) async fn try_request(&self, request: Request, attachments: Attachments) -> Result<Answer, Error> {
        self.answer(request, attachments, Duration::ZERO).await
    }

    async fn answer(&self, request: Request, attachments: Attachments, programs: Duration) -> Result<Answer, Error> {
        let metrics = &self.metrics;
        let (kind, began, _waiting) = (kind(&request), Instant::now(), Gauge::hold(&metrics.waiting));
        let answer = async {
            let mut answers = self.send(request, attachments, programs).await?;
            answers.next().await
        };
        let answer = answer.instrument(debug_span!("monitor", request = MONITOR_REQUESTS[kind])).await;
        match &answer {
            Ok(_) => metrics.round_trip.observe(began.elapsed()),
            Err(_) => metrics.unanswered.add(1),
        }
        answer
    }

    /// Requests the list of all that the monitor holds, with the descriptors.
    pub(crate) async fn inventory(&self) -> Result<Vec<(Holding, Attachments)>, Error> {
        let mut answers = self.send(Request::Inventory, Attachments::new(), Duration::ZERO).await?;
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

    /// Waits until the connection is closed.
    pub(crate) async fn closed(&self) {
        // The sender is a field of self, so this cannot fail.
        let _ = self.closed.subscribe().wait_for(|closed| *closed).await;
    }

    /// Closes the connection.
    pub(super) fn close(&self) {
        // It may be closed already.
        let _ = rustix::net::shutdown(&self.socket.get_ref().0, rustix::net::Shutdown::Both);
    }

    pub(super) fn is_closed(&self) -> bool {
        *self.closed.borrow()
    }

    /// Sends a request within [`Timeouts::send`]; programs of the node may run for it as long as `programs`. Dropping the
    /// returned value, also by a caller that gives up, ends the wait for replies.
    async fn send(&self, request: Request, attachments: Attachments, programs: Duration) -> Result<Replies<'_>, Error> {
        self.metrics.requests[kind(&request)].add(1);
        let seq = self.next.fetch_add(1, Ordering::Relaxed);
        #[expect(clippy::disallowed_methods, reason = "one reply, or one per object that the monitor holds")]
        let (sender, receiver) = mpsc::unbounded_channel();
        match self.pending.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            Some(pending) => pending.insert(seq, sender),
            None => return Err(lost()),
        };
        let timeout = self.timeouts.answer + program_time(&request) + programs;
        let replies = Replies { link: self, seq, receiver, timeout };
        let envelope = Envelope::Request { seq, body: Box::new(request), roles: Vec::new() };
        let sent = async {
            // One sender at a time: the room that was found is still available when it sends.
            let _send_lock = self.send_lock.lock().await;
            let mut write_readiness = WriteReadiness::default();
            poll_fn(|context| write_readiness.poll(&self.socket.get_ref().0, context)).await;
            let sent = self.socket.get_ref().0.send(envelope, &attachments);
            close_attachments(attachments);
            sent
        };
        match tokio::time::timeout(self.timeouts.send, sent).await {
            Ok(Ok(())) => Ok(replies),
            Ok(Err(CodecError::Closed)) => {
                // The reader may have read no end of file yet. A caller that repeats the request must not get this
                // connection again.
                let _ = tokio::time::timeout(self.timeouts.send, self.closed()).await;
                Err(lost())
            }
            Ok(Err(error)) => Err(Error::internal(format!("send a request to the monitor: {error}"))),
            Err(_) => Err(hung("takes no request", self.timeouts.send)),
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
                Err(CodecError::Malformed(why)) => tracing::warn!("ignored a malformed frame from the monitor: {why}"),
                Err(CodecError::Closed) => break,
                Err(error) => {
                    tracing::warn!("read from the monitor: {error}");
                    break;
                }
            }
        }
        // Before the callers that wait: they are notified by the end of their channel, and may repeat their requests.
        self.closed.send_replace(true);
        self.pending.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    fn dispatch(&self, envelope: Envelope, attachments: Attachments, events: &mpsc::UnboundedSender<Event>) {
        match envelope {
            // The engine has ended: nobody receives the event, and the next engine requests the inventory.
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
            Envelope::Request { .. } => tracing::warn!("ignored a request from the monitor"),
        }
    }
}

/// Receiver of the replies to one request. Dropping it ends the wait.
struct Replies<'a> {
    link: &'a Link,
    seq: u64,
    receiver: mpsc::UnboundedReceiver<Answer>,
    /// How long each reply is waited for.
    timeout: Duration,
}

impl Replies<'_> {
    async fn next(&mut self) -> Result<Answer, Error> {
        let timeout = self.timeout;
        match tokio::time::timeout(timeout, self.receiver.recv()).await {
            Ok(Some(answer)) => Ok(answer),
            Ok(None) => Err(lost()),
            Err(_) => Err(hung("does not answer", timeout)),
        }
    }
}

impl Drop for Replies<'_> {
    fn drop(&mut self) {
        self.link.forget(self.seq);
    }
}

/// Returns how long the programs of the node may take that a request contains; the monitor kills them then.
fn program_time(request: &Request) -> Duration {
    let seconds = match request {
        Request::RuntimeCommand(command) => command.timeout,
        Request::RuntimeDelete { runtime, .. } => runtime.timeout,
        // What a failed `create` leaves behind is deleted by another command.
        Request::Create(create) => create.runtime.as_ref().map_or(0, |runtime| runtime.timeout.saturating_mul(2)),
        _ => 0,
    };
    Duration::from_secs(seconds.into())
}

fn hung(behaviour: &str, timeout: Duration) -> Error {
    Error::new(ErrorKind::DeadlineExceeded, format!("the monitor {behaviour} within {timeout:?}"))
}

fn lost() -> Error {
    Error::unavailable("the connection to the monitor was lost; it is being restored, try again")
}

pub(super) fn unexpected(request: &str, reply: &Reply) -> Error {
    Error::internal(format!("the monitor answered {request} with {:?}", reply.name()))
}

#[cfg(test)]
pub(super) mod tests;
