//! Sessions: the streams of an exec'd or attached process, and their control.

use std::sync::Arc;

use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::watch,
};

use super::{
    command::Command,
    request::{SessionExit, UNKNOWN},
    window::Window,
};
use crate::{
    Error,
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
    window: Option<Window>,
}

/// What a session is connected to.
#[derive(Clone)]
enum Target {
    Exec(Arc<Command>),
    Container(watch::Receiver<Arc<ContainerRecord>>),
}

impl SessionControl {
    pub(super) fn exec(command: Command, window: Option<Window>) -> Self {
        Self { target: Target::Exec(Arc::new(command)), window }
    }

    pub(super) fn container(watch: watch::Receiver<Arc<ContainerRecord>>, window: Option<Window>) -> Self {
        Self { target: Target::Container(watch), window }
    }

    /// Changes the window size of the session's terminal; does nothing without a terminal.
    ///
    /// # Errors
    /// The error of the kernel, if the terminal is gone.
    pub async fn resize(&self, size: oci::TerminalSize) -> Result<(), Error> {
        match &self.window {
            None => Ok(()),
            Some(window) => window.resize(size).await,
        }
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
