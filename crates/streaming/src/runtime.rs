//! The interface to the container runtime.

use std::{future::Future, pin::Pin};

use tokio::io::{AsyncRead, AsyncWrite};

use crate::{Attach, Exec};

/// An error, as a message for the client.
pub type Error = Box<dyn std::error::Error + Send + Sync>;
/// A stream of output.
pub type Reader = Box<dyn AsyncRead + Send + Unpin>;
/// A stream of input; shutting it down or dropping it closes it.
pub type Writer = Box<dyn AsyncWrite + Send + Unpin>;

type Later<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Provides the sessions that clients request.
pub trait Runtime: Send + Sync + 'static {
    /// Executes a command; dropping the session kills its process.
    fn exec(&self, request: &Exec) -> impl Future<Output = Result<Session, Error>> + Send;

    /// Attaches to a container's streams; dropping the session does not affect the container.
    fn attach(&self, request: &Attach) -> impl Future<Output = Result<Session, Error>> + Send;

    /// Connects to a port of a pod. Returns what it sends, and what is sent to it.
    fn connect(&self, sandbox: &str, port: u16) -> impl Future<Output = Result<(Reader, Writer), Error>> + Send;
}

/// The streams of an exec'd process or an attached container.
pub struct Session {
    /// Standard input.
    pub stdin: Option<Writer>,
    /// Standard output; all output of a terminal.
    pub stdout: Option<Reader>,
    /// Standard error.
    pub stderr: Option<Reader>,
    /// Terminal size and exit status.
    pub control: Box<dyn Control>,
    /// Whether the end of the client's input ends the session. True for an attached container whose input stays open.
    pub ends_with_input: bool,
}

/// Operations on a session other than its streams.
pub trait Control: Send + Sync {
    /// Changes the size of the terminal. Does nothing if there is none or it is closed.
    fn resize(&self, size: oci::TerminalSize) -> Later<'_, ()>;

    /// Waits for the exit of the process (or the attached container), and returns its exit code.
    fn wait(&self) -> Later<'_, Result<i32, Error>>;
}
