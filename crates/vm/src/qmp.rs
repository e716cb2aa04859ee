//! The protocol of QEMU's monitor socket, QMP: lines of JSON.
//!
//! ```text
//! QEMU ──▶ {"QMP": {"version": …}}                         the greeting
//!      ◀── {"execute": …, "arguments": {…}, "id": 1}       a command; descriptors travel with its first byte
//!      ──▶ {"return": …, "id": 1}                          its answer, or {"error": {"class", "desc"}, "id": 1}
//!      ──▶ {"event": …, "data": {…}}                       at any time
//! ```
//! QEMU serves one client at a time; another one gets its greeting when that one has closed its connection.
//!
//! QEMU is hostile after an escape of the guest: every message is bounded ([`Qmp`] closes the connection at a longer one),
//! and so is every wait.
//!
//! Documentation: <https://www.qemu.org/docs/master/interop/qmp-spec.html>.

use std::{
    collections::HashMap,
    fmt, io,
    os::fd::BorrowedFd,
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use serde::Serialize;
use serde_json::{Value, json};
use tokio::{
    net::UnixStream,
    sync::{broadcast, mpsc, oneshot, watch},
};

use crate::error::{Error, ErrorKind, printable};

mod event;
mod line;
mod message;
mod socket;

pub use event::{Event, EventKind, Events};
use line::LineReader;
pub use message::Version;
use message::{Greeting, Message, Refusal, Request};
use socket::{DESCRIPTORS_MAX, Line};

/// Commands that wait to be sent.
const QUEUE: usize = 16;

/// Why a connection ended.
#[derive(Clone, Debug)]
struct Failure {
    kind: ErrorKind,
    cause: String,
}

/// A connection to QEMU; dropping it closes it.
pub struct Qmp {
    shared: Arc<Shared>,
    writer: mpsc::Sender<Line>,
    next_id: AtomicU64,
    /// Held from the sending of descriptors until the answer: QEMU keeps those of the last message only.
    descriptors: tokio::sync::Mutex<()>,
    timeout: Duration,
    version: Version,
}

/// What the connection shares with the tasks that read and write.
struct Shared {
    socket: UnixStream,
    pending: Mutex<HashMap<u64, oneshot::Sender<Result<Value, Refusal>>>>,
    events: broadcast::Sender<Event>,
    closed: watch::Sender<Option<Failure>>,
}

impl Qmp {
    /// Connects to the socket at `path`. Needs the runtime of tokio. `timeout` is the time limit of this, and of each
    /// command.
    ///
    /// # Errors
    /// `Gone` if no QEMU serves the socket, `Timeout`, also if it serves another client, `Protocol`.
    pub async fn connect(path: &Path, timeout: Duration) -> Result<Self, Error> {
        let operation = || format!("connect to QEMU at {}", path.display());
        let connected = async {
            let socket =
                socket::connect(path).await.map_err(|error| Error::new(ErrorKind::Gone, operation(), error))?;
            Self::negotiate(socket, timeout).await.map_err(|error| error.during(operation()))
        };
        let expired =
            |_| Error::new(ErrorKind::Timeout, operation(), format!("no greeting within {}", seconds(timeout)));
        tokio::time::timeout(timeout, connected).await.map_err(expired)?
    }

    /// Uses a connected socket: receives the greeting and leaves the negotiation of capabilities. `timeout` is the time limit
    /// of each command; the greeting is waited for without a limit.
    ///
    /// # Errors
    /// Those of [`Qmp::connect`].
    pub async fn negotiate(socket: UnixStream, timeout: Duration) -> Result<Self, Error> {
        let failed = |failure: Failure| Error::new(failure.kind, "read the greeting", failure.cause);
        let mut reader = LineReader::default();
        let line = reader.next(&socket).await.map_err(|error| failed(Failure::read(&error)))?;
        let greeting = serde_json::from_slice::<Greeting>(&line);
        let version = greeting.map_err(|error| failed(Failure::protocol(error)))?.qmp.version.qemu;
        let (writer, queue) = mpsc::channel(QUEUE);
        let shared = Arc::new(Shared {
            socket,
            pending: Mutex::default(),
            events: broadcast::Sender::new(event::QUEUE),
            closed: watch::Sender::new(None),
        });
        tokio::spawn(Arc::clone(&shared).run(reader, queue));
        let descriptors = tokio::sync::Mutex::default();
        let qmp = Self { shared, writer, next_id: AtomicU64::new(1), descriptors, timeout, version };
        qmp.execute("qmp_capabilities", json!({}), &[]).await?;
        Ok(qmp)
    }

    /// Executes a command and returns its answer. Passes duplicates of `descriptors`; `getfd` and `add-fd` take
    /// one.
    ///
    /// A command with descriptors that is cancelled or times out closes the connection: QEMU could take them for those of
    /// a later command.
    ///
    /// # Errors
    /// `Refused` with the error of QEMU, and the others of [`ErrorKind`].
    pub async fn execute(
        &self,
        command: &str,
        arguments: impl Serialize,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<Value, Error> {
        let failed = |kind, cause: &dyn ToString| Error::new(kind, format!("QMP command {command}"), cause.to_string());
        if descriptors.len() > DESCRIPTORS_MAX {
            return Err(failed(ErrorKind::Invalid, &"too many descriptors"));
        }
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let request = serde_json::to_vec(&Request { execute: command, arguments, id });
        let mut bytes = request.map_err(|error| failed(ErrorKind::Invalid, &error))?;
        bytes.push(b'\n');
        let duplicates = descriptors.iter().map(BorrowedFd::try_clone_to_owned).collect::<io::Result<Vec<_>>>();
        let descriptors = duplicates.map_err(|error| failed(ErrorKind::System, &error))?;
        let exchange = tokio::time::timeout(self.timeout, self.exchange(id, Line { bytes, descriptors }));
        let outcome = tokio::select! {
            biased;
            outcome = exchange => outcome,
            failure = self.shared.failure() => return Err(failed(failure.kind, &failure.cause)),
        };
        match outcome {
            Err(_) => Err(failed(ErrorKind::Timeout, &format!("no answer within {}", seconds(self.timeout)))),
            Ok(Err(failure)) => Err(failed(failure.kind, &failure.cause)),
            Ok(Ok(Ok(result))) => Ok(result),
            Ok(Ok(Err(Refusal { class, desc }))) => Err(failed(ErrorKind::Refused { class: printable(&class) }, &desc)),
        }
    }

    /// Sends a command and waits for its answer.
    async fn exchange(&self, id: u64, line: Line) -> Result<Result<Value, Refusal>, Failure> {
        let (sender, answer) = oneshot::channel();
        self.shared.pending().insert(id, sender);
        let _forget = Forget(&self.shared, id);
        let passes_descriptors = !line.descriptors.is_empty();
        let _order = match passes_descriptors {
            true => Some(self.descriptors.lock().await),
            false => None,
        };
        let mut unanswered = CloseOnDrop { shared: &self.shared, armed: passes_descriptors };
        if self.writer.send(line).await.is_err() {
            return Err(self.shared.failure().await);
        }
        let Ok(answer) = answer.await else { return Err(self.shared.failure().await) };
        unanswered.armed = false;
        Ok(answer)
    }

    /// Returns a receiver of the events from now on.
    pub fn events(&self) -> Events {
        Events { receiver: self.shared.events.subscribe(), closed: self.shared.closed.subscribe(), lost: 0 }
    }

    /// Version of QEMU.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Whether the connection is closed, because QEMU exited or does not keep to the protocol.
    pub fn is_closed(&self) -> bool {
        self.shared.closed.borrow().is_some()
    }

    /// Waits until the connection is closed.
    pub async fn closed(&self) {
        self.shared.failure().await;
    }

    /// Closes the connection for all who use it; commands without an answer fail. QEMU then serves its next client.
    pub(crate) fn close(&self) {
        self.shared.close(Failure::gone("the connection was closed"));
        // The task that reads and writes does the same, but not at once.
        let _ = rustix::net::shutdown(&self.shared.socket, rustix::net::Shutdown::Both);
    }

    /// Time limit of a command.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }
}

impl Drop for Qmp {
    fn drop(&mut self) {
        self.shared.close(Failure::gone("the connection is closed"));
    }
}

impl fmt::Debug for Qmp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Qmp").field("version", &self.version).field("closed", &self.is_closed()).finish_non_exhaustive()
    }
}

impl Shared {
    /// Reads and writes until the connection ends.
    async fn run(self: Arc<Self>, mut reader: LineReader, mut queue: mpsc::Receiver<Line>) {
        let write = async {
            while let Some(line) = queue.recv().await {
                if let Err(error) = socket::send(&self.socket, line).await {
                    return Failure::gone(error);
                }
            }
            Failure::gone("the connection is closed")
        };
        let failure = tokio::select! {
            failure = self.read(&mut reader) => failure,
            failure = write => failure,
            failure = self.failure() => failure,
        };
        self.close(failure);
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
    }

    async fn read(&self, reader: &mut LineReader) -> Failure {
        loop {
            let delivered = match reader.next(&self.socket).await {
                Ok(line) => self.deliver(&line),
                Err(error) => Err(Failure::read(&error)),
            };
            if let Err(failure) = delivered {
                return failure;
            }
        }
    }

    /// Delivers an answer or an event. An answer that nobody waits for came too late.
    fn deliver(&self, line: &[u8]) -> Result<(), Failure> {
        let message: Message = serde_json::from_slice(line).map_err(Failure::protocol)?;
        match message {
            Message { event: Some(name), data, .. } => {
                if let Some(kind) = EventKind::parse(&name) {
                    // Without a receiver nobody needs it.
                    let data = if line.len() > event::EVENT_MAX { Value::Null } else { data };
                    let _ = self.events.send(Event { kind, data });
                }
            }
            Message { id: Some(id), error: Some(refusal), .. } => self.answer(id, Err(refusal)),
            Message { id: Some(id), result: Some(result), .. } => self.answer(id, Ok(result)),
            Message { error: Some(Refusal { desc, .. }), .. } => return Err(Failure::protocol(desc)),
            _ => return Err(Failure::protocol("it is neither an answer nor an event")),
        }
        Ok(())
    }

    fn answer(&self, id: u64, answer: Result<Value, Refusal>) {
        let sender = self.pending().remove(&id);
        let _ = sender.map(|sender| sender.send(answer));
    }

    fn pending(&self) -> MutexGuard<'_, HashMap<u64, oneshot::Sender<Result<Value, Refusal>>>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes the connection; the first reason is the one that is reported.
    fn close(&self, failure: Failure) {
        self.closed.send_if_modified(|closed| {
            let first = closed.is_none();
            closed.get_or_insert(failure);
            first
        });
    }

    /// Waits until the connection is closed, and returns why it is.
    async fn failure(&self) -> Failure {
        let mut closed = self.closed.subscribe();
        let failure = closed.wait_for(Option::is_some).await.ok().and_then(|failure| failure.clone());
        failure.unwrap_or_else(|| Failure::gone("the connection is closed"))
    }
}

impl Failure {
    fn gone(cause: impl ToString) -> Self {
        Self { kind: ErrorKind::Gone, cause: cause.to_string() }
    }

    fn protocol(cause: impl fmt::Display) -> Self {
        Self { kind: ErrorKind::Protocol, cause: printable(&format!("QEMU sent an invalid message: {cause}")) }
    }

    fn read(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::InvalidData => Self { kind: ErrorKind::Protocol, cause: error.to_string() },
            io::ErrorKind::UnexpectedEof => Self::gone("QEMU exited, or closed the connection"),
            _ => Self::gone(error),
        }
    }
}

/// Forgets a command that is answered, timed out or cancelled.
struct Forget<'a>(&'a Shared, u64);

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.0.pending().remove(&self.1);
    }
}

/// Closes the connection when a command with descriptors is dropped before its answer.
struct CloseOnDrop<'a> {
    shared: &'a Shared,
    armed: bool,
}

impl Drop for CloseOnDrop<'_> {
    fn drop(&mut self) {
        if self.armed {
            self.shared.close(Failure::gone("a command that passes descriptors was not answered"));
        }
    }
}

fn seconds(time: Duration) -> String {
    format!("{} s", time.as_secs_f32())
}

/// Connects to the socket of a program in the jail of a virtual machine monitor. Follows no symbolic link at the end of the
/// path, which can be longer than an address.
///
/// # Errors
/// Those of openat(2) and connect(2).
pub async fn connect_socket(path: &Path) -> std::io::Result<UnixStream> {
    socket::connect(path).await
}

#[cfg(test)]
mod tests;
