//! A connection to a plugin: requests in both directions over one socket (ttrpc).
//!
//! A task reads and another one writes; neither is ever waited for without a deadline. A plugin that does not read, does
//! not answer, or sends garbage costs at most the timeout of the request.

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
use tokio::{
    net::UnixStream,
    sync::{Semaphore, mpsc, oneshot, watch},
};

use crate::{
    bounded::{self, Bounded},
    messages::{Request, Response, Status},
    wire::{self, Kind, Message, PAYLOAD_MAX, PLUGIN_SERVICE, RUNTIME_SERVICE},
};

const PLUGIN: &str = "nri.pkg.api.v1alpha1.Plugin";
const RUNTIME: &str = "nri.pkg.api.v1alpha1.Runtime";
/// Messages that wait to be written.
const QUEUE: usize = 16;
/// Requests of a plugin that are served at the same time.
const SERVED_MAX: usize = 8;

/// Status codes of gRPC that matter here.
pub(crate) mod code {
    pub(crate) const INVALID_ARGUMENT: i32 = 3;
    pub(crate) const RESOURCE_EXHAUSTED: i32 = 8;
    pub(crate) const UNIMPLEMENTED: i32 = 12;
}

/// Why a request to a plugin has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CallError {
    #[error("no answer within {} ms", .0.as_millis())]
    Timeout(Duration),
    #[error("its connection is closed")]
    Closed,
    #[error("its answer cannot be understood: {0}")]
    Garbage(String),
    #[error("the request of {0} bytes is too long")]
    TooLong(usize),
    /// The plugin answered with an error.
    #[error("{message}")]
    Refused { code: i32, message: String },
}

/// Serves the requests of a plugin: the method and its encoded argument in, the encoded answer out.
pub(crate) type Service = Arc<dyn Fn(String, Vec<u8>) -> BoxFuture<'static, Result<Vec<u8>, Status>> + Send + Sync>;

type Answer = Result<Vec<u8>, CallError>;

/// A connection; dropping it closes it.
pub(crate) struct Connection {
    calls: Arc<Mutex<HashMap<u32, oneshot::Sender<Answer>>>>,
    next_stream: AtomicU32,
    writer: mpsc::Sender<Message>,
    closed: watch::Sender<bool>,
}

impl Connection {
    pub(crate) fn new(socket: UnixStream, service: Service) -> Self {
        let (read_half, mut write_half) = socket.into_split();
        let (writer, mut queue) = mpsc::channel::<Message>(QUEUE);
        let closed = watch::Sender::new(false);
        let calls = Arc::<Mutex<HashMap<_, _>>>::default();
        let receiver = Receiver {
            calls: Arc::clone(&calls),
            service,
            writer: writer.clone(),
            permits: Arc::new(Semaphore::new(SERVED_MAX)),
        };
        let (closing, mut reader_closed, mut writer_closed) = (closed.clone(), closed.subscribe(), closed.subscribe());
        tokio::spawn(async move {
            let ended = tokio::select! {
                ended = receiver.run(wire::Reader::new(read_half)) => ended,
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
                    if wire::write(&mut write_half, &message).await.is_err() {
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

    /// Sends a request and waits for the answer, for at most `timeout`.
    pub(crate) async fn call<Answer: Bounded>(
        &self,
        method: &str,
        argument: &impl prost::Message,
        timeout: Duration,
    ) -> Result<Answer, CallError> {
        let deadline = i64::try_from(timeout.as_nanos()).unwrap_or(i64::MAX);
        let request = Request {
            service: PLUGIN.to_owned(),
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
            let message = Message { connection: PLUGIN_SERVICE, stream, kind: Kind::Request, payload };
            self.writer.send(message).await.map_err(|_| CallError::Closed)?;
            answer.await.unwrap_or(Err(CallError::Closed))
        };
        let answer = tokio::select! {
            answer = exchange => answer?,
            () = self.closed() => {
                // The reason is known to the task that reads, which may not have delivered it.
                return Err(CallError::Closed);
            }
            () = tokio::time::sleep(timeout) => return Err(CallError::Timeout(timeout)),
        };
        bounded::decode(&answer).map_err(|e| CallError::Garbage(e.to_string()))
    }

    pub(crate) fn close(&self) {
        self.closed.send_replace(true);
    }

    pub(crate) fn is_closed(&self) -> bool {
        *self.closed.borrow()
    }

    /// Waits until the connection is closed.
    pub(crate) async fn closed(&self) {
        let _ = self.closed.subscribe().wait_for(|closed| *closed).await;
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.close();
    }
}

/// Forgets a call that is answered, timed out or cancelled.
struct Forget<'a>(&'a Mutex<HashMap<u32, oneshot::Sender<Answer>>>, u32);

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
    calls: Arc<Mutex<HashMap<u32, oneshot::Sender<Answer>>>>,
    service: Service,
    writer: mpsc::Sender<Message>,
    permits: Arc<Semaphore>,
}

impl Receiver {
    /// Reads until the connection ends, and returns why it did.
    async fn run(&self, mut reader: wire::Reader<tokio::net::unix::OwnedReadHalf>) -> CallError {
        loop {
            let message = match reader.next().await {
                Ok(message) => message,
                Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
                    return CallError::Garbage(error.to_string());
                }
                Err(_) => return CallError::Closed,
            };
            match (message.connection, message.kind) {
                (PLUGIN_SERVICE, Kind::Response) => self.deliver(message),
                (RUNTIME_SERVICE, Kind::Request) => self.serve(message),
                (connection, kind) => return CallError::Garbage(format!("a {kind:?} on connection {connection}")),
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
            // If the plugin does not read either, it gets no answer.
            let busy = Status { code: code::RESOURCE_EXHAUSTED, message: "too many requests at once".to_owned() };
            let _ = writer.try_send(response(stream, Err(busy)));
            return;
        };
        tokio::spawn(async move {
            let _permit = permit;
            let answer = match Request::decode(&*message.payload) {
                Err(error) => Err(Status { code: code::INVALID_ARGUMENT, message: error.to_string() }),
                Ok(request) if request.service != RUNTIME => {
                    Err(Status { code: code::UNIMPLEMENTED, message: format!("no service {}", request.service) })
                }
                Ok(request) => service(request.method, request.payload).await,
            };
            let _ = writer.send(response(stream, answer)).await;
        });
    }
}

fn response(stream: u32, answer: Result<Vec<u8>, Status>) -> Message {
    let (status, payload) = match answer {
        Ok(payload) => (None, payload),
        Err(status) => (Some(status), Vec::new()),
    };
    let payload = Response { status, payload }.encode_to_vec();
    Message { connection: RUNTIME_SERVICE, stream, kind: Kind::Response, payload }
}
