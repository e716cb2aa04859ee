//! A plugin that speaks the protocol over a real socket, and can break it in every way.
#![allow(dead_code, reason = "each test program uses a part")]

use std::{path::Path, sync::Arc};

use nri::messages::{Configure, Empty, RegisterPlugin, Subscription};
use prost::Message;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
};
use ttrpc::{Request, Response, Status};

/// What the plugin does with a request.
pub(crate) enum Reply {
    Answer(Vec<u8>),
    Refuse(i32, &'static str),
    /// It never answers, but reads further requests.
    Hang,
    /// It closes its connection.
    Die,
    /// It sends these bytes in place of a message.
    Raw(Vec<u8>),
}

impl Reply {
    pub(crate) fn message(message: &impl Message) -> Self {
        Self::Answer(message.encode_to_vec())
    }

    pub(crate) fn empty() -> Self {
        Self::message(&Empty {})
    }
}

/// Answers a request, given its method and its argument.
pub(crate) type Behaviour = Arc<dyn Fn(&str, &[u8]) -> Reply + Send + Sync>;

/// One end of the connection.
pub(crate) struct Plugin {
    socket: UnixStream,
    behaviour: Behaviour,
}

async fn send(socket: &mut UnixStream, connection: u32, (stream, kind): (u32, u8), payload: &[u8]) -> Option<()> {
    let mut message = Vec::new();
    message.extend(u32::try_from(payload.len()).expect("a short message").to_be_bytes());
    message.extend(stream.to_be_bytes());
    message.extend([kind, 0]);
    message.extend(payload);
    // Header and payload in frames of their own, as a writer without a buffer sends them.
    for part in [&message[..10], &message[10..]] {
        let mut frame = connection.to_be_bytes().to_vec();
        frame.extend(u32::try_from(part.len()).expect("a short frame").to_be_bytes());
        frame.extend(part);
        socket.write_all(&frame).await.ok()?;
    }
    Some(())
}

/// Reads messages; returns connection, stream, kind and payload.
async fn receive(socket: &mut UnixStream, buffers: &mut [Vec<u8>; 3]) -> Option<(u32, u32, u8, Vec<u8>)> {
    loop {
        for (connection, buffer) in buffers.iter_mut().enumerate() {
            let number = |at: usize| u32::from_be_bytes(buffer[at..at + 4].try_into().expect("four bytes"));
            if buffer.len() < 10 || buffer.len() < 10 + number(0) as usize {
                continue;
            }
            let (length, stream, kind) = (number(0) as usize, number(4), buffer[8]);
            let payload = buffer[10..10 + length].to_vec();
            buffer.drain(..10 + length);
            return Some((connection as u32, stream, kind, payload));
        }
        let connection = socket.read_u32().await.ok()? as usize;
        let mut part = vec![0; socket.read_u32().await.ok()? as usize];
        socket.read_exact(&mut part).await.ok()?;
        buffers[connection].extend(part);
    }
}

impl Plugin {
    /// Connects, without registering.
    pub(crate) async fn connect(path: &Path, behaviour: Behaviour) -> Self {
        Self { socket: UnixStream::connect(path).await.expect("the socket accepts"), behaviour }
    }

    /// Sends a request and returns the answer. Requests that arrive in the meantime are served.
    pub(crate) async fn call(&mut self, method: &str, argument: &impl Message) -> Result<Vec<u8>, String> {
        self.call_encoded(method, argument.encode_to_vec()).await
    }

    /// Like [`Self::call`], with an argument that need not be a message.
    pub(crate) async fn call_encoded(&mut self, method: &str, payload: Vec<u8>) -> Result<Vec<u8>, String> {
        let request = Request {
            service: "nri.pkg.api.v1alpha1.Runtime".to_owned(),
            method: method.to_owned(),
            payload,
            timeout_nano: 0,
        };
        send(&mut self.socket, 2, (1, 1), &request.encode_to_vec()).await.ok_or("closed")?;
        let mut buffers = Default::default();
        loop {
            match receive(&mut self.socket, &mut buffers).await.ok_or("closed")? {
                (2, _, 2, payload) => {
                    let response = Response::decode(&*payload).map_err(|e| e.to_string())?;
                    return match response.status {
                        Some(Status { code, message }) if code != 0 => Err(format!("{code}: {message}")),
                        _ => Ok(response.payload),
                    };
                }
                (1, stream, 1, payload) => self.serve(stream, &payload).await.ok_or("closed")?,
                other => return Err(format!("an unexpected message: {other:?}")),
            }
        }
    }

    /// Registers with an index and a name, and serves requests in a task.
    pub(crate) fn run(mut self, index: &str, name: &str) -> tokio::task::JoinHandle<()> {
        let registration = RegisterPlugin {
            plugin_name: name.to_owned(),
            plugin_idx: index.to_owned(),
            nri_version: "v0.12.5".to_owned(),
        };
        tokio::spawn(async move {
            if self.call("RegisterPlugin", &registration).await.is_ok() {
                self.serve_all().await;
            }
        })
    }

    pub(crate) async fn serve_all(&mut self) -> Option<()> {
        let mut buffers = Default::default();
        loop {
            let (_, stream, _, payload) = receive(&mut self.socket, &mut buffers).await?;
            self.serve(stream, &payload).await?;
        }
    }

    async fn serve(&mut self, stream: u32, payload: &[u8]) -> Option<()> {
        let request = Request::decode(payload).expect("a request");
        let response = match (self.behaviour)(&request.method, &request.payload) {
            Reply::Answer(payload) => Response { status: Some(Status::default()), payload },
            Reply::Refuse(code, message) => {
                Response { status: Some(Status { code, message: message.to_owned() }), payload: Vec::new() }
            }
            Reply::Hang => return Some(()),
            Reply::Die => return None,
            Reply::Raw(bytes) => return self.socket.write_all(&bytes).await.ok(),
        };
        send(&mut self.socket, 1, (stream, 2), &response.encode_to_vec()).await
    }
}

/// Answers what every plugin must answer: it subscribes to all events, and requests nothing.
pub(crate) fn neutral(method: &str, argument: &[u8]) -> Reply {
    match method {
        "Configure" => {
            Configure::decode(argument).expect("a configuration");
            Reply::message(&Subscription::default())
        }
        "Synchronize" => {
            let more = nri::messages::Synchronize::decode(argument).expect("a synchronization").more;
            Reply::message(&nri::messages::Synchronized { more, update: Vec::new() })
        }
        _ => Reply::empty(),
    }
}
