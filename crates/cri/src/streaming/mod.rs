//! Exec, attach and port-forward: what [`streaming`] carries, done by [`pod`].

mod request;
mod session;

use std::sync::Arc;

use pod::Engine;
use streaming::{Attach, Counts, Error, Exec, Request, Runtime, Server, Session, TooMany};
use tokio::net::TcpStream;

pub(crate) use request::{container_streams, ports};
pub use streaming::{BindError, Counts as SessionCounts, Options as StreamingOptions};

/// The listener that exec, attach and port-forward are served on. Cheap to clone.
#[derive(Clone)]
pub struct Streaming(Arc<Server<Streams>>);

/// What [`streaming`] serves.
struct Streams(Engine);

impl Streaming {
    /// Listens.
    ///
    /// # Errors
    /// When the address cannot be had.
    pub async fn bind(options: StreamingOptions, engine: Engine) -> Result<Self, BindError> {
        Ok(Self(Arc::new(Server::bind(options, Streams(engine)).await?)))
    }

    /// How many sessions there are and were.
    pub fn counts(&self) -> Counts {
        self.0.counts()
    }

    pub(crate) fn url(&self, request: Request) -> Result<String, TooMany> {
        self.0.url(request)
    }

    pub(crate) async fn serve(&self, stop: impl Future<Output = ()>) {
        self.0.serve(stop).await;
    }
}

impl Runtime for Streams {
    async fn exec(&self, request: &Exec) -> Result<Session, Error> {
        let asked = session::request(request.command.clone(), request.streams);
        Ok(session::of_command(self.0.exec(&request.container, asked).await?))
    }

    async fn attach(&self, request: &Attach) -> Result<Session, Error> {
        let container = self.0.container(&request.container)?;
        let asked = session::request(Vec::new(), request.streams);
        let attached = self.0.attach(&container.id, asked).await?;
        Ok(session::of_container(attached, &container.config))
    }

    async fn connect(&self, sandbox: &str, port: u16) -> Result<TcpStream, Error> {
        Ok(self.0.port_forward(sandbox, port).await?)
    }
}
