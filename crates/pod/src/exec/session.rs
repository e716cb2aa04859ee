//! Sessions: the streams of an exec'd or attached process, and their control.

use std::sync::Arc;

use rustix::termios::Winsize;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::watch,
};

use super::{
    command::Command,
    request::{SessionExit, UNKNOWN},
};
use crate::{
    Error,
    error::failed,
    stdio::Terminal,
    store::{ContainerPhase, ContainerRecord},
};

/// Streams of an exec session or an attached container. Dropping all of them kills the exec'd process, but not a
/// container.
pub struct Session {
    /// Writer of standard input; shutting it down or dropping it closes the input.
    pub stdin: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    /// Reader of standard output; with a terminal, of all output.
    pub stdout: Option<Box<dyn AsyncRead + Send + Unpin>>,
    /// Reader of standard error.
    pub stderr: Option<Box<dyn AsyncRead + Send + Unpin>>,
    /// Control of the session.
    pub control: SessionControl,
}

/// Control of a session: resizing and waiting. Cheap to clone; an exec'd process is killed when the last clone is
/// dropped.
#[derive(Clone)]
pub struct SessionControl {
    target: Target,
    terminal: Option<Arc<Terminal>>,
}

/// What a session is connected to.
#[derive(Clone)]
enum Target {
    Exec(Arc<Command>),
    Container(watch::Receiver<Arc<ContainerRecord>>),
}

impl SessionControl {
    pub(super) fn exec(command: Command, terminal: Option<Terminal>) -> Self {
        Self { target: Target::Exec(Arc::new(command)), terminal: terminal.map(Arc::new) }
    }

    pub(super) fn container(watch: watch::Receiver<Arc<ContainerRecord>>, terminal: Option<Terminal>) -> Self {
        Self { target: Target::Container(watch), terminal: terminal.map(Arc::new) }
    }

    /// Changes the window size of the session's terminal; does nothing without a terminal.
    ///
    /// # Errors
    /// The error of the kernel, if the terminal is gone.
    pub async fn resize(&self, size: oci::TerminalSize) -> Result<(), Error> {
        let Some(terminal) = self.terminal.as_ref().and_then(|terminal| terminal.master()) else { return Ok(()) };
        let size = Winsize { ws_row: size.height, ws_col: size.width, ws_xpixel: 0, ws_ypixel: 0 };
        rustix::termios::tcsetwinsize(terminal, size).map_err(failed("resize the terminal"))
    }

    /// Waits until the exec'd process or the attached container has exited.
    ///
    /// # Errors
    /// If its exit cannot be watched anymore.
    pub async fn wait(&self) -> Result<SessionExit, Error> {
        let lost = || Error::unavailable("its exit can no longer be watched");
        match &self.target {
            Target::Exec(command) => Ok(command.with_oom_kill(command.exited().await?)),
            Target::Container(watch) => {
                let mut watch = watch.clone();
                let exited = watch.wait_for(|record| record.phase == ContainerPhase::Exited).await;
                let record = exited.map_err(|_| lost())?;
                let oom_killed = record.is_oom_killed();
                Ok(SessionExit { code: record.exit_code.unwrap_or(UNKNOWN), oom_killed })
            }
        }
    }
}
