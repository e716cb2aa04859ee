//! What is served: the other side of this crate.

use std::{future::Future, pin::Pin};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};

use crate::{Attach, Exec};

/// Why something cannot be had, as one sentence for the client.
pub type Error = Box<dyn std::error::Error + Send + Sync>;
/// Output.
pub type Reader = Box<dyn AsyncRead + Send + Unpin>;
/// Input; shutting it down or dropping it is its end.
pub type Writer = Box<dyn AsyncWrite + Send + Unpin>;

type Later<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Makes what clients ask for.
pub trait Runtime: Send + Sync + 'static {
    /// Runs a command; dropping the session ends it.
    fn exec(&self, request: &Exec) -> impl Future<Output = Result<Session, Error>> + Send;

    /// Connects to a container's streams; dropping the session leaves the container running.
    fn attach(&self, request: &Attach) -> impl Future<Output = Result<Session, Error>> + Send;

    /// A connection to a port of a pod.
    fn connect(&self, sandbox: &str, port: u16) -> impl Future<Output = Result<TcpStream, Error>> + Send;
}

/// Streams of a command or an attached container.
pub struct Session {
    /// Where input goes.
    pub stdin: Option<Writer>,
    /// Output (of a terminal: all).
    pub stdout: Option<Reader>,
    /// Errors.
    pub stderr: Option<Reader>,
    /// The rest.
    pub control: Box<dyn Control>,
    /// Whether the end of the client's input ends the session: that of an attached container whose input stays open.
    pub ends_with_input: bool,
}

/// The side of a session that is no stream.
pub trait Control: Send + Sync {
    /// Changes the size of the terminal; without one nothing happens, and a terminal that is gone has none.
    fn resize(&self, size: Size) -> Later<'_, ()>;

    /// The exit code, once the command (or the attached container) ended.
    fn ended(&self) -> Later<'_, Result<i32, Error>>;
}

/// Size of a terminal, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Its width.
    pub columns: u16,
    /// Its height.
    pub rows: u16,
}
