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

/// How a command ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    pub(crate) code: i32,
    /// It was killed for want of memory.
    pub(crate) oom_killed: bool,
}

/// A command that is killed, with all it started, when nobody has its session any more.
pub(crate) struct Command {
    id: String,
    engine: Weak<Inner>,
    ended: watch::Receiver<Option<Result<Ended, Error>>>,
}

impl Command {
    pub(crate) fn new(engine: &Arc<Inner>, id: String, mut wait: ExecWait) -> Self {
        let (sender, ended) = watch::channel(None);
        tokio::spawn(async move {
            let ended = wait.ended().await;
            let ended = ended.map(|(code, oom_killed)| Ended { code: code.unwrap_or(UNKNOWN), oom_killed });
            let _ = sender.send(Some(ended));
        });
        Self { id, engine: Arc::downgrade(engine), ended }
    }
}

impl Command {
    /// Resolves when it ended.
    pub(crate) async fn ended(&self) -> Result<Ended, Error> {
        let lost = || Error::unavailable("its end can no longer be watched");
        let mut ended = self.ended.clone();
        let ended = ended.wait_for(Option::is_some).await.map_err(|_| lost())?;
        ended.clone().unwrap_or_else(|| Err(lost()))
    }

    /// Kills it with all it started, and resolves when nothing of it is left.
    pub(crate) async fn kill(&self) -> Result<(), Error> {
        let Some(engine) = self.engine.upgrade() else { return Ok(()) };
        engine.monitor.swept(&self.id).await?;
        self.ended().await.map(drop)
    }
}

impl Drop for Command {
    fn drop(&mut self) {
        if self.ended.borrow().is_some() {
            return;
        }
        let (Some(engine), Ok(runtime)) = (self.engine.upgrade(), tokio::runtime::Handle::try_current()) else {
            return;
        };
        runtime.spawn(kill(engine.monitor.clone(), self.id.clone()));
    }
}

pub(crate) async fn kill(monitor: Monitor, id: String) {
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
            End::Command(command) => Ok(command.ended().await?.code),
            End::Container(watch) => {
                let mut watch = watch.clone();
                let ended = watch.wait_for(|record| record.phase == ContainerPhase::Exited).await;
                Ok(ended.map_err(|_| lost())?.exit_code.unwrap_or(UNKNOWN))
            }
        }
    }
}
