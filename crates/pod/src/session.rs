//! Streams of a command or an attached container.

use tokio::io::{AsyncRead, AsyncWrite};

use crate::Error;

/// Streams of a command or an attached container. Dropping it all ends a command, not a container.
pub struct Session {
    /// Where input goes; shutting it down is the end of input.
    pub stdin: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    /// Output (of a terminal: all).
    pub stdout: Option<Box<dyn AsyncRead + Send + Unpin>>,
    /// Errors.
    pub stderr: Option<Box<dyn AsyncRead + Send + Unpin>>,
    /// The rest.
    pub control: SessionControl,
}

/// The side of a session that is no stream. Cheap to clone; a command is ended when its last clone goes.
#[derive(Clone)]
pub struct SessionControl {}

impl SessionControl {
    /// Changes the window size of the session's terminal.
    pub async fn resize(&self, columns: u16, rows: u16) -> Result<(), Error> {
        todo!("{columns} {rows}")
    }

    /// Exit code of the command (or of the attached container); 255 where it cannot be known.
    pub async fn wait(&self) -> Result<i32, Error> {
        todo!()
    }
}
