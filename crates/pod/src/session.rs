//! Streams of a command or an attached container.

mod stream;

use std::sync::{Arc, Weak};

use monitor_api::{KillScope, Target};
use rustix::{fd::OwnedFd, process::Signal, termios::Winsize};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::watch,
};

use crate::{
    Error,
    container::{ContainerPhase, ContainerRecord},
    engine::Inner,
    error::failed,
    monitor::{ExecWait, Monitor},
};

pub(crate) use stream::{Attached, Input, Output, TerminalStream};

/// Where an exit code cannot be known.
const UNKNOWN: i32 = 255;

/// Streams of a command or an attached container. Dropping it all ends a command, not a container.
pub struct Session {
    /// Where input goes; shutting it down or dropping it is the end of input.
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
pub struct SessionControl {
    target: End,
    terminal: Option<Arc<OwnedFd>>,
}

/// Whose end is waited for.
#[derive(Clone)]
enum End {
    Command(Arc<Command>),
    Container(watch::Receiver<Arc<ContainerRecord>>),
}

/// A command that is killed, with all it started, when nobody has its session any more.
pub(crate) struct Command {
    id: String,
    engine: Weak<Inner>,
    code: watch::Receiver<Option<Result<i32, Error>>>,
}

impl Command {
    pub(crate) fn new(engine: &Arc<Inner>, id: String, mut wait: ExecWait) -> Self {
        let (sender, code) = watch::channel(None);
        tokio::spawn(async move {
            let ended = wait.ended().await.map(|code| code.unwrap_or(UNKNOWN));
            let _ = sender.send(Some(ended));
        });
        Self { id, engine: Arc::downgrade(engine), code }
    }
}

impl Drop for Command {
    fn drop(&mut self) {
        if self.code.borrow().is_some() {
            return;
        }
        let (Some(engine), Ok(runtime)) = (self.engine.upgrade(), tokio::runtime::Handle::try_current()) else {
            return;
        };
        runtime.spawn(kill(engine.monitor.clone(), self.id.clone()));
    }
}

async fn kill(monitor: Monitor, id: String) {
    let target = Target::Exec(id);
    if let Err(error) = monitor.kill(&target, Signal::KILL.as_raw(), KillScope::All).await {
        tracing::warn!("end a command whose client left: {error}");
    }
}

impl SessionControl {
    pub(crate) fn command(command: Command, terminal: Option<OwnedFd>) -> Self {
        Self { target: End::Command(Arc::new(command)), terminal: terminal.map(Arc::new) }
    }

    pub(crate) fn container(watch: watch::Receiver<Arc<ContainerRecord>>, terminal: Option<OwnedFd>) -> Self {
        Self { target: End::Container(watch), terminal: terminal.map(Arc::new) }
    }

    /// Kills a command with all it started; nothing for a container.
    pub(crate) async fn kill(&self) -> Result<(), Error> {
        let End::Command(command) = &self.target else { return Ok(()) };
        let Some(engine) = command.engine.upgrade() else { return Ok(()) };
        let target = Target::Exec(command.id.clone());
        engine.monitor.kill(&target, Signal::KILL.as_raw(), KillScope::All).await
    }

    /// Changes the window size of the session's terminal; without one nothing happens.
    ///
    /// # Errors
    /// The kernel's, when the terminal is gone.
    pub async fn resize(&self, columns: u16, rows: u16) -> Result<(), Error> {
        let Some(terminal) = &self.terminal else { return Ok(()) };
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        rustix::termios::tcsetwinsize(terminal, size).map_err(failed("resize the terminal"))
    }

    /// Exit code of the command (or of the attached container); 255 where it cannot be known.
    ///
    /// # Errors
    /// When the command's end cannot be watched any more.
    pub async fn wait(&self) -> Result<i32, Error> {
        let lost = || Error::unavailable("its end can no longer be watched");
        match &self.target {
            End::Command(command) => {
                let mut code = command.code.clone();
                let ended = code.wait_for(Option::is_some).await.map_err(|_| lost())?;
                ended.clone().unwrap_or_else(|| Err(lost()))
            }
            End::Container(watch) => {
                let mut watch = watch.clone();
                let ended = watch.wait_for(|record| record.phase == ContainerPhase::Exited).await;
                Ok(ended.map_err(|_| lost())?.exit_code.unwrap_or(UNKNOWN))
            }
        }
    }
}
