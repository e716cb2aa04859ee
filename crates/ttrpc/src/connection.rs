//! A connection: a task reads and another one writes; neither is ever waited for without a deadline.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use futures_util::future::BoxFuture;
use prost::Message as _;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};

use crate::{
    envelope::{Request, Response, Status, code},
    message::{Kind, Message, PAYLOAD_MAX, Receive, Transmit},
};

/// Messages that wait to be written.
const QUEUE: usize = 16;
/// Most bytes of the error in an answer: it may contain what the peer has sent, and waits until that reads.
const ERROR_MAX: usize = 256;
/// Requests of a peer that are served at the same time.
const SERVED_MAX: usize = 8;

/// Why a request has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The peer did not answer in time.
    #[error("no answer within {} ms", .0.as_millis())]
    Timeout(Duration),
    /// The peer closed the connection.
    #[error("its connection is closed")]
    Closed,
    /// The answer is not a valid message.
    #[error("its answer cannot be understood: {0}")]
    Garbage(String),
    /// The request is longer than [`PAYLOAD_MAX`].
    #[error("the request of {0} bytes is too long")]
    TooLong(usize),
    /// The peer answered with an error.
    #[error("{message}")]
    Refused {
        /// Code of gRPC.
        code: i32,
        /// The error, for people.
        message: String,
    },
}

/// Serves the requests of a peer: the request in, the encoded answer out.
pub type Service = Arc<dyn Fn(Request) -> BoxFuture<'static, Result<Vec<u8>, Status>> + Send + Sync>;

/// Returns the service of a peer that only sends requests.
pub fn refuse_all() -> Service {
    Arc::new(|request: Request| {
        let message = format!("no service {}", request.service);
        Box::pin(std::future::ready(Err(Status { code: code::UNIMPLEMENTED, message })))
    })
}

type Answer = Result<Vec<u8>, CallError>;
type Calls = Arc<Mutex<HashMap<u32, oneshot::Sender<Answer>>>>;

/// A connection; dropping it closes it.
pub struct Connection {
    calls: Calls,
    next_stream: AtomicU32,
    writer: mpsc::Sender<Message>,
    closed: watch::Sender<bool>,
}

impl Connection {
    /// Creates a connection and the tasks that read and write. Needs the runtime of tokio.
    pub fn new(mut reader: impl Receive, mut transmitter: impl Transmit, service: Service) -> Self {
        let (writer, mut queue) = mpsc::channel::<Message>(QUEUE);
        let closed = watch::Sender::new(false);
        let calls = Calls::default();
        let receiver = Receiver {
            calls: Arc::clone(&calls),
            service,
            writer: writer.clone(),
            permits: Arc::new(Semaphore::new(SERVED_MAX)),
        };
        let (closing, mut reader_closed, mut writer_closed) = (closed.clone(), closed.subscribe(), closed.subscribe());
        tokio::spawn(async move {
            let ended = tokio::select! {
                ended = receiver.run(&mut reader) => ended,
                _ = reader_closed.wait_for(|closed| *closed) => CallError::Closed,
            };
            closing.send_replace(true);
            let open: Vec<_> = lock(&receiver.calls).drain().collect();
            open.into_iter().for_each(|(_, call)| drop(call.send(Err(ended.clone()))));
        });
        let closing = closed.clone();
        tokio::spawn(async move {
            let write = async {
                while let Some(message) = queue.recv().await {
                    if transmitter.send(&message).await.is_err() {
                        return;
                    }
                }
            };
            tokio::select! {
                () = write => {}
                _ = writer_closed.wait_for(|closed| *closed) => {}
            }
            closing.send_replace(true);
        });
        Self { calls, next_stream: AtomicU32::new(1), writer, closed }
    }

    /// Sends a request and waits for the encoded answer; for at most `timeout`, if there is one.
    ///
    /// # Errors
    /// Those of [`CallError`].
    pub async fn call(
        &self,
        service: &str,
        method: &str,
        argument: &impl prost::Message,
        timeout: Option<Duration>,
    ) -> Result<Vec<u8>, CallError> {
        let deadline = timeout.map_or(0, |timeout| i64::try_from(timeout.as_nanos()).unwrap_or(i64::MAX));
        let request = Request {
            service: service.to_owned(),
            method: method.to_owned(),
            payload: argument.encode_to_vec(),
            timeout_nano: deadline,
        };
        let payload = request.encode_to_vec();
        if payload.len() > PAYLOAD_MAX {
            return Err(CallError::TooLong(payload.len()));
        }
        // The numbers of streams that a client opens are odd and ascending.
        let stream = self.next_stream.fetch_add(2, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        lock(&self.calls).insert(stream, sender);
        let _forget = Forget(&self.calls, stream);
        let exchange = async {
            let message = Message { stream, kind: Kind::Request, payload };
            self.writer.send(message).await.map_err(|_| CallError::Closed)?;
            answer.await.unwrap_or(Err(CallError::Closed))
        };
        let limited = async {
            match timeout {
                Some(timeout) => {
                    tokio::time::timeout(timeout, exchange).await.unwrap_or(Err(CallError::Timeout(timeout)))
                }
                None => exchange.await,
            }
        };
        tokio::select! {
            biased;
            answer = limited => answer,
            // The reason is known to the task that reads, which may not have delivered it.
            () = self.closed() => Err(CallError::Closed),
        }
    }

    /// Closes the connection.
    pub fn close(&self) {
        self.closed.send_replace(true);
    }

    /// Whether the connection is closed.
    pub fn is_closed(&self) -> bool {
        *self.closed.borrow()
    }

    /// Waits until the connection is closed.
    pub async fn closed(&self) {
        let _ = self.closed.subscribe().wait_for(|closed| *closed).await;
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.close();
    }
}

/// Forgets a call that is answered, timed out or cancelled.
struct Forget<'a>(&'a Calls, u32);

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        lock(self.0).remove(&self.1);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The task that reads.
struct Receiver {
    calls: Calls,
    service: Service,
    writer: mpsc::Sender<Message>,
    permits: Arc<Semaphore>,
}

impl Receiver {
    /// Reads until the connection ends, and returns why it did.
    async fn run(&self, reader: &mut impl Receive) -> CallError {
        loop {
            let message = match reader.next().await {
                Ok(message) => message,
                Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
                    return CallError::Garbage(error.to_string());
                }
                Err(_) => return CallError::Closed,
            };
            match message.kind {
                Kind::Response => self.deliver(message),
                Kind::Request => self.serve(message),
            }
        }
    }

    /// Delivers an answer. One that nobody waits for came too late.
    fn deliver(&self, message: Message) {
        let Some(call) = lock(&self.calls).remove(&message.stream) else { return };
        let answer = match Response::decode(&*message.payload) {
            Err(error) => Err(CallError::Garbage(error.to_string())),
            Ok(Response { status: Some(Status { code, message }), .. }) if code != 0 => {
                Err(CallError::Refused { code, message })
            }
            Ok(Response { payload, .. }) => Ok(payload),
        };
        let _ = call.send(answer);
    }

    /// Serves a request in a task of its own.
    fn serve(&self, message: Message) {
        let (service, writer, stream) = (Arc::clone(&self.service), self.writer.clone(), message.stream);
        let permit = Arc::clone(&self.permits).try_acquire_owned();
        let Ok(permit) = permit else {
            // If the peer does not read either, it gets no answer.
            let busy = Status { code: code::RESOURCE_EXHAUSTED, message: "too many requests at once".to_owned() };
            let _ = writer.try_send(response(stream, Err(busy)));
            return;
        };
        tokio::spawn(async move {
            let _permit = permit;
            let request = Request::decode(&*message.payload);
            // Nothing of the request is kept while the answer waits to be written.
            drop(message);
            let answer = match request {
                Err(error) => Err(Status { code: code::INVALID_ARGUMENT, message: error.to_string() }),
                Ok(request) => service(request).await,
            };
            let _ = writer.send(response(stream, answer)).await;
        });
    }
}

fn response(stream: u32, answer: Result<Vec<u8>, Status>) -> Message {
    let (status, payload) = match answer {
        Ok(payload) => (None, payload),
        Err(Status { code, mut message }) => {
            message.truncate(message.floor_char_boundary(ERROR_MAX));
            message.shrink_to_fit();
            (Some(Status { code, message }), Vec::new())
        }
    };
    let payload = Response { status, payload }.encode_to_vec();
    Message { stream, kind: Kind::Response, payload }
}

#[cfg(test)]
mod tests;
