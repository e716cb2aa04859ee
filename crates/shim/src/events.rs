//! Events of shims: a ttrpc server (`containerd.services.events.ttrpc.v1.Events`) on a socket of the engine.
//!
//! Events are hints: an exit counts only when the shim answers `Wait`. Each connection may have [`ttrpc`]'s number of
//! requests in progress, of at most 64 KiB, and there are at most [`CONNECTIONS_MAX`] connections.

use std::{fs, io, os::unix::fs::PermissionsExt, path::Path, sync::Arc};

use prost::Message;
use tokio::{
    net::{UnixListener, UnixStream},
    sync::{Semaphore, mpsc},
};
use ttrpc::{Request, Service, Status, code};

use crate::messages::{Empty, ForwardRequest, TaskEvent};

/// Most connections at the same time.
pub const CONNECTIONS_MAX: usize = 256;
/// Events that wait to be handled. More are dropped.
pub const QUEUE: usize = 256;

const SERVICE: &str = "containerd.services.events.ttrpc.v1.Events";
/// Most bytes of a request. An event contains an id and, for some topics, the configuration of a container in short.
const REQUEST_MAX: usize = 64 << 10;
/// Longest id of a container in an event.
const ID_MAX: usize = 128;

/// What an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topic {
    /// The OOM killer killed a process of the container.
    OutOfMemory,
    /// A process of the container exited.
    Exit,
}

/// An event of a shim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// What it is about.
    pub topic: Topic,
    /// Container id, as the shim states it.
    pub container: String,
    /// Pid of the process that sent it, as the kernel knows it.
    pub sender: u32,
}

/// Serves events on a socket until the receiver is dropped.
///
/// # Errors
/// Those of bind(2).
pub fn serve(path: &Path) -> io::Result<mpsc::Receiver<Event>> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    let (sender, receiver) = mpsc::channel(QUEUE);
    tokio::spawn(accept(listener, sender));
    Ok(receiver)
}

async fn accept(listener: UnixListener, events: mpsc::Sender<Event>) {
    /// Pause after an error, for example without descriptors.
    const PAUSE: std::time::Duration = std::time::Duration::from_millis(100);
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = events.closed() => return,
        };
        let socket = match accepted {
            Ok((socket, _)) => socket,
            Err(error) => {
                tracing::warn!("accept a connection of a shim: {error}");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        // A shim that gets no connection retries, and its events are only hints.
        let Ok(permit) = Arc::clone(&permits).try_acquire_owned() else { continue };
        let Some(sender) = peer(&socket) else { continue };
        let connection = ttrpc::connect_with_limit(socket, service(sender, events.clone()), REQUEST_MAX);
        let events = events.clone();
        tokio::spawn(async move {
            let _permit = permit;
            tokio::select! {
                () = connection.closed() => {}
                () = events.closed() => {}
            }
        });
    }
}

fn peer(socket: &UnixStream) -> Option<u32> {
    let credentials = socket.peer_cred().ok().filter(|credentials| credentials.uid() == 0)?;
    credentials.pid()?.try_into().ok()
}

fn service(sender: u32, events: mpsc::Sender<Event>) -> Service {
    Arc::new(move |request: Request| {
        let answer = forward(sender, &request).map(|event| {
            if let Some(event) = event {
                // A full queue loses the event.
                let _ = events.try_send(event);
            }
            Empty {}.encode_to_vec()
        });
        Box::pin(std::future::ready(answer))
    })
}

/// Parses a request. `None`: an event that means nothing here.
fn forward(sender: u32, request: &Request) -> Result<Option<Event>, Status> {
    let refuse = |code, message: String| Err(Status { code, message });
    if request.service != SERVICE || request.method != "Forward" {
        return refuse(code::UNIMPLEMENTED, format!("no method {} of {}", request.method, request.service));
    }
    let invalid = |error: prost::DecodeError| Status { code: code::INVALID_ARGUMENT, message: error.to_string() };
    let envelope = ForwardRequest::decode(&*request.payload).map_err(invalid)?.envelope.unwrap_or_default();
    let topic = match envelope.topic.as_str() {
        "/tasks/oom" => Topic::OutOfMemory,
        "/tasks/exit" => Topic::Exit,
        _ => return Ok(None),
    };
    let event = TaskEvent::decode(&*envelope.event.unwrap_or_default().value).map_err(invalid)?;
    match event.container_id.len() {
        1..=ID_MAX => Ok(Some(Event { topic, container: event.container_id, sender })),
        length => refuse(code::INVALID_ARGUMENT, format!("a container id of {length} bytes")),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::messages::{Any, Envelope};

    fn request(topic: &str, container: &str) -> ForwardRequest {
        let value = TaskEvent { container_id: container.to_owned() }.encode_to_vec();
        let event = Some(Any { type_url: "containerd.events.TaskOOM".to_owned(), value });
        let envelope = Envelope { namespace: "k8s.io".to_owned(), topic: topic.to_owned(), event };
        ForwardRequest { envelope: Some(envelope) }
    }

    #[tokio::test]
    async fn events_arrive_with_the_pid_of_their_sender() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("events");
        let mut events = serve(&path).expect("served");
        let socket = UnixStream::connect(&path).await.expect("connected");
        let client = ttrpc::connect(socket, ttrpc::refuse_all());
        let timeout = Some(Duration::from_secs(5));
        let send = |topic: &str, container: &str| {
            let request = request(topic, container);
            let client = &client;
            async move { client.call(SERVICE, "Forward", &request, timeout).await }
        };
        send("/tasks/start", "other").await.expect("accepted");
        send("/tasks/oom", "web").await.expect("accepted");
        send("/tasks/oom", &"x".repeat(200)).await.expect_err("refused");
        let other = client.call(&"x".repeat(10_000), "Forward", &request("/tasks/oom", "web"), timeout).await;
        let Err(ttrpc::CallError::Refused { message, .. }) = other else { panic!("{other:?}") };
        assert!(message.len() <= 256, "{} bytes of the request are repeated", message.len());
        let event = events.recv().await.expect("an event");
        let expected = Event { topic: Topic::OutOfMemory, container: "web".into(), sender: std::process::id() };
        assert_eq!(event, expected);
    }
}
