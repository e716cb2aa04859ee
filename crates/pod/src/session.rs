//! Streams of a command or an attached container.

mod pipe_record;
mod shared_pipe;
mod stream;
mod terminal;

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use cgroup::Group;
use rustix::termios::Winsize;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::watch,
};

use crate::{
    Error, clock,
    container::{Container, ContainerPhase, ContainerRecord, end::OOM_KILLED},
    engine::{Inner, blocking},
    error::failed,
    monitor::ExecWait,
};

pub(crate) use pipe_record::{PipeRecord, recorded as recorded_pipes};
pub(crate) use shared_pipe::{
    PipeCalls, PipeReader, SharedPipe, blocked_calls as blocked_pipe_calls, close_all as close_pipes,
    close_attachments, is_shared,
};
pub(crate) use stream::{Attached, Input, Output, TerminalStream};
pub(crate) use terminal::{Terminal, close as close_terminal};

/// Where an exit code cannot be known.
const UNKNOWN: i32 = 255;
const SIGKILLED: i32 = 128 + 9;

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
    terminal: Option<Arc<Terminal>>,
}

/// Whose end is waited for.
#[derive(Clone)]
enum End {
    Command(Arc<Command>),
    Container(watch::Receiver<Arc<ContainerRecord>>),
}

/// How a command, or an attached container, ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Exit code, 128 + signal; 255 where it cannot be known.
    pub code: i32,
    /// The OOM killer ended it, or a process of the attached container.
    pub oom_killed: bool,
}

/// A command that is killed, with all it started, when nobody has its session any more.
pub(crate) struct Command {
    id: String,
    container: Arc<Container>,
    engine: Weak<Inner>,
    ended: watch::Receiver<Option<Result<Ended, Error>>>,
}

impl Command {
    pub(crate) fn new(engine: &Arc<Inner>, container: &Arc<Container>, id: String, wait: ExecWait) -> Self {
        let (sender, ended) = watch::channel(None);
        let engine = Arc::downgrade(engine);
        let end = end(engine.clone(), Arc::clone(container), id.clone(), wait);
        tokio::spawn(async move {
            let _ = sender.send(Some(end.await));
        });
        Self { id, container: Arc::clone(container), engine, ended }
    }

    /// Resolves when it ended.
    pub(crate) async fn ended(&self) -> Result<Ended, Error> {
        let lost = || Error::unavailable("its end can no longer be watched");
        let mut ended = self.ended.clone();
        let ended = ended.wait_for(Option::is_some).await.map_err(|_| lost())?;
        ended.clone().unwrap_or_else(|| Err(lost()))
    }

    /// Says whether the OOM killer ended it. The kernel counts its kills for the container, whose memory a command
    /// shares, and the monitor reports whether there was any: a kill that no earlier command was blamed for is this
    /// one's. The container's timeline gets it.
    pub(crate) fn explained(&self, ended: Ended) -> Ended {
        let Some(engine) = self.engine.upgrade().filter(|_| ended.code == SIGKILLED) else { return ended };
        let oom_killed = self.container.has_new_oom_kill(&engine);
        if oom_killed {
            let now = clock::now();
            self.container.part("a command (exec) was killed: out of memory".into(), now, now, "");
        }
        Ended { oom_killed, ..ended }
    }

    /// Kills it with all it started, and resolves when nothing of it is left.
    pub(crate) async fn kill(&self) -> Result<(), Error> {
        /// The kernel notifies nobody when the last process that was killed is gone. Most are after a moment. Each
        /// request costs the monitor a walk of the group, so the delay grows.
        const RETRY_DELAY: Duration = Duration::from_millis(2);
        const RETRY_DELAY_MAX: Duration = Duration::from_millis(64);
        let Some(engine) = self.engine.upgrade() else { return Ok(()) };
        let mut delay = RETRY_DELAY;
        while kill(&engine, &self.container, &self.id).await? {
            tokio::time::sleep(delay).await;
            delay = (2 * delay).min(RETRY_DELAY_MAX);
        }
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
        let (container, id) = (Arc::clone(&self.container), self.id.clone());
        runtime.spawn(async move {
            if let Err(error) = kill(&engine, &container, &id).await {
                tracing::warn!("end a command whose client left: {error}");
            }
        });
    }
}

/// How it ended. A monitor that died tells nothing any more, and nobody else removes the command's group then.
async fn end(engine: Weak<Inner>, container: Arc<Container>, id: String, mut wait: ExecWait) -> Result<Ended, Error> {
    if let Some(status) = wait.told().await {
        return Ok(Ended { code: status.code.unwrap_or(UNKNOWN), oom_killed: status.oom_killed });
    }
    let code = wait.ended().await?;
    if let Some(engine) = engine.upgrade() {
        // What it left running stays in its group, which goes with the container then.
        let removed = by_group(&engine, &container, &id, |group| match group.is_empty()? {
            true => group.remove(),
            false => Ok(()),
        });
        if let Err(error) = removed.await {
            tracing::warn!("{error}");
        }
    }
    Ok(Ended { code: code.unwrap_or(UNKNOWN), oom_killed: false })
}

/// Kills a command with all it started; false: it is not there, or was killed for good. A monitor that died took what
/// it knew of its commands along: theirs are found by their groups.
pub(crate) async fn kill(engine: &Arc<Inner>, container: &Arc<Container>, id: &str) -> Result<bool, Error> {
    if engine.monitor.kill_command(id).await? {
        return Ok(true);
    }
    let killed = by_group(engine, container, id, |group| {
        group.kill()?;
        group.remove()
    });
    killed.await.map(|()| false)
}

/// Does something with a command's group, if it is there.
async fn by_group(
    engine: &Arc<Inner>,
    container: &Arc<Container>,
    id: &str,
    what: impl FnOnce(Group) -> Result<(), cgroup::Error> + Send + 'static,
) -> Result<(), Error> {
    let (engine, container, id) = (Arc::clone(engine), Arc::clone(container), id.to_owned());
    blocking(move || {
        // Without the container's there is none.
        let Ok(of) = container.group(&engine) else { return Ok(()) };
        let done = match of.open_exec_group(&id) {
            Err(cgroup::Error::Missing { .. }) => Ok(()),
            found => found.and_then(what),
        };
        done.map_err(failed(format_args!("end a command in container {}", container.id())))
    })
    .await
}

impl SessionControl {
    pub(crate) fn command(command: Command, terminal: Option<Terminal>) -> Self {
        Self { target: End::Command(Arc::new(command)), terminal: terminal.map(Arc::new) }
    }

    pub(crate) fn container(watch: watch::Receiver<Arc<ContainerRecord>>, terminal: Option<Terminal>) -> Self {
        Self { target: End::Container(watch), terminal: terminal.map(Arc::new) }
    }

    /// Changes the window size of the session's terminal; without one nothing happens.
    ///
    /// # Errors
    /// The kernel's, when the terminal is gone.
    pub async fn resize(&self, columns: u16, rows: u16) -> Result<(), Error> {
        let Some(terminal) = self.terminal.as_ref().and_then(|terminal| terminal.master()) else { return Ok(()) };
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        rustix::termios::tcsetwinsize(terminal, size).map_err(failed("resize the terminal"))
    }

    /// Resolves when the command (or the attached container) ended.
    ///
    /// # Errors
    /// When its end cannot be watched anymore.
    pub async fn wait(&self) -> Result<Ended, Error> {
        let lost = || Error::unavailable("its end can no longer be watched");
        match &self.target {
            End::Command(command) => Ok(command.explained(command.ended().await?)),
            End::Container(watch) => {
                let mut watch = watch.clone();
                let ended = watch.wait_for(|record| record.phase == ContainerPhase::Exited).await;
                let record = ended.map_err(|_| lost())?;
                let oom_killed = record.reason == OOM_KILLED;
                Ok(Ended { code: record.exit_code.unwrap_or(UNKNOWN), oom_killed })
            }
        }
    }
}
