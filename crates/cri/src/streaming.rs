//! Exec, attach and port-forward: connects the server of [`streaming`] with the engine.

mod request;
mod session;

use std::sync::Arc;

use pod::{Engine, PodStream};
use streaming::{Attach, Counts, Error, Exec, Reader, Request, Runtime, Server, Session, TokenError, Writer};

pub(crate) use request::{container_streams, ports};
pub use streaming::{BindError, Counts as SessionCounts, Options as StreamingOptions};

/// The listener of exec, attach and port-forward. Clones share it and are cheap.
#[derive(Clone)]
pub struct Streaming(Arc<Server<Streams>>);

/// Implements the operations of [`streaming`] with the engine.
struct Streams(Engine);

impl Streaming {
    /// Binds the listener.
    ///
    /// # Errors
    /// When the address cannot be bound.
    pub async fn bind(options: StreamingOptions, engine: Engine) -> Result<Self, BindError> {
        Ok(Self(Arc::new(Server::bind(options, Streams(engine)).await?)))
    }

    /// Returns the numbers of current and past sessions.
    pub fn counts(&self) -> Counts {
        self.0.counts()
    }

    pub(crate) fn url(&self, request: Request) -> Result<String, TokenError> {
        self.0.url(request)
    }

    pub(crate) async fn serve(&self, stop: impl Future<Output = ()>) {
        self.0.serve(stop).await;
    }
}

impl Runtime for Streams {
    async fn exec(&self, request: &Exec) -> Result<Session, Error> {
        let exec_request = session::request(request.command.clone(), request.streams);
        Ok(session::for_exec(self.0.exec(&request.container, exec_request).await?))
    }

    async fn attach(&self, request: &Attach) -> Result<Session, Error> {
        let container = self.0.container(&request.container)?;
        let attach_request = session::request(Vec::new(), request.streams);
        let session = self.0.attach(&container.id, attach_request).await?;
        Ok(session::for_attach(session, &container.config))
    }

    async fn connect(&self, sandbox: &str, port: u16) -> Result<(Reader, Writer), Error> {
        Ok(match self.0.port_forward(sandbox, port).await? {
            PodStream::Node(stream) => {
                let _ = stream.set_nodelay(true);
                let (reader, writer) = stream.into_split();
                (Box::new(reader), Box::new(writer))
            }
            PodStream::Guest(stream) => {
                let (reader, writer) = stream.into_split();
                (Box::new(reader), Box::new(writer))
            }
        })
    }
}
