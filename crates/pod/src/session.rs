//! Streams of an exec session or an attached container.

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
    container::{Container, ContainerPhase, ContainerRecord},
    engine::{Inner, blocking},
    error::failed,
    monitor::ExecWait,
};

pub(crate) use pipe_record::{PipeRecord, recorded as recorded_pipes};
pub(crate) use shared_pipe::{
    PipeCalls, PipeReader, SharedPipe, blocked_calls as blocked_pipe_calls, close_all as close_pipes,
    close_attachments, is_shared,
};
pub(crate) use stream::{AttachedInput, Input, Output, TerminalStream};
pub(crate) use terminal::{Terminal, close as close_terminal};

/// Exit code that is reported if it cannot be determined.
const UNKNOWN: i32 = 255;
const SIGKILLED: i32 = 128 + 9;

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
    Exec(Arc<ExecProcess>),
    Container(watch::Receiver<Arc<ContainerRecord>>),
}

/// Exit of an exec'd process or an attached container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionExit {
    /// Exit code, or 128 + signal; 255 if it cannot be determined.
    pub code: i32,
    /// Whether the OOM killer killed it, or a process of the attached container.
    pub oom_killed: bool,
}

/// An exec'd process. It is killed with all its descendants when its session is dropped.
pub(crate) struct ExecProcess {
    id: String,
    container: Arc<Container>,
    engine: Weak<Inner>,
    exit: watch::Receiver<Option<Result<SessionExit, Error>>>,
}

impl ExecProcess {
    pub(crate) fn new(engine: &Arc<Inner>, container: &Arc<Container>, id: String, wait: ExecWait) -> Self {
        let (sender, exit) = watch::channel(None);
        let engine = Arc::downgrade(engine);
        let waiting = wait_for_exit(engine.clone(), Arc::clone(container), id.clone(), wait);
        tokio::spawn(async move {
            let _ = sender.send(Some(waiting.await));
        });
        Self { id, container: Arc::clone(container), engine, exit }
    }

    /// Waits until it has exited.
    pub(crate) async fn exited(&self) -> Result<SessionExit, Error> {
        let lost = || Error::unavailable("its exit can no longer be watched");
        let mut exit = self.exit.clone();
        let exit = exit.wait_for(Option::is_some).await.map_err(|_| lost())?;
        exit.clone().unwrap_or_else(|| Err(lost()))
    }

    /// Sets `oom_killed`. The kernel counts OOM kills for the whole container, whose memory an exec'd process shares,
    /// and the monitor reports whether there was any: a kill that was not attributed to an earlier exec is attributed
    /// to this one. It is also added to the container's timeline.
    pub(crate) fn with_oom_kill(&self, exit: SessionExit) -> SessionExit {
        let Some(engine) = self.engine.upgrade().filter(|_| exit.code == SIGKILLED) else { return exit };
        let oom_killed = self.container.has_new_oom_kill(&engine);
        if oom_killed {
            let now = clock::now();
            self.container.part("a command (exec) was killed: out of memory".into(), now, now, "");
        }
        SessionExit { oom_killed, ..exit }
    }

    /// Kills it with all its descendants, and returns when all of them are gone.
    pub(crate) async fn kill(&self) -> Result<(), Error> {
        /// The kernel does not notify when the last killed process is gone. Most are gone after a moment. Each request
        /// makes the monitor walk the cgroup, so the delay grows.
        const RETRY_DELAY: Duration = Duration::from_millis(2);
        const RETRY_DELAY_MAX: Duration = Duration::from_millis(64);
        let Some(engine) = self.engine.upgrade() else { return Ok(()) };
        let mut delay = RETRY_DELAY;
        while kill(&engine, &self.container, &self.id).await? {
            tokio::time::sleep(delay).await;
            delay = (2 * delay).min(RETRY_DELAY_MAX);
        }
        self.exited().await.map(drop)
    }
}

impl Drop for ExecProcess {
    fn drop(&mut self) {
        if self.exit.borrow().is_some() {
            return;
        }
        let (Some(engine), Ok(runtime)) = (self.engine.upgrade(), tokio::runtime::Handle::try_current()) else {
            return;
        };
        let (container, id) = (Arc::clone(&self.container), self.id.clone());
        runtime.spawn(async move {
            if let Err(error) = kill(&engine, &container, &id).await {
                tracing::warn!("kill an exec'd process whose client disconnected: {error}");
            }
        });
    }
}

/// Waits until an exec'd process has exited. If the connection to its monitor was lost, no exit is reported and nothing
/// else removes the cgroup of the process, so it is removed here.
async fn wait_for_exit(
    engine: Weak<Inner>,
    container: Arc<Container>,
    id: String,
    mut wait: ExecWait,
) -> Result<SessionExit, Error> {
    if let Some(status) = wait.reported_exit().await {
        return Ok(SessionExit { code: status.code.unwrap_or(UNKNOWN), oom_killed: status.oom_killed });
    }
    let code = wait.exit_code().await?;
    if let Some(engine) = engine.upgrade() {
        // Processes that it left running stay in its cgroup, which is then removed with the container.
        let removed = with_group(&engine, &container, &id, |group| match group.is_empty()? {
            true => group.remove(),
            false => Ok(()),
        });
        if let Err(error) = removed.await {
            tracing::warn!("{error}");
        }
    }
    Ok(SessionExit { code: code.unwrap_or(UNKNOWN), oom_killed: false })
}

/// Kills an exec'd process with all its descendants. Returns false if it does not exist, or all are gone. The execs of
/// a dead monitor are found by their cgroups.
pub(crate) async fn kill(engine: &Arc<Inner>, container: &Arc<Container>, id: &str) -> Result<bool, Error> {
    if engine.monitor.kill_exec(id).await? {
        return Ok(true);
    }
    let killed = with_group(engine, container, id, |group| {
        group.kill()?;
        group.remove()
    });
    killed.await.map(|()| false)
}

/// Calls `action` with the cgroup of an exec'd process, if it exists.
async fn with_group(
    engine: &Arc<Inner>,
    container: &Arc<Container>,
    id: &str,
    action: impl FnOnce(Group) -> Result<(), cgroup::Error> + Send + 'static,
) -> Result<(), Error> {
    let (engine, container, id) = (Arc::clone(engine), Arc::clone(container), id.to_owned());
    blocking(move || {
        // If the container's cgroup does not exist, neither does that of the process.
        let Ok(container_group) = container.group(&engine) else { return Ok(()) };
        let outcome = match container_group.open_exec_group(&id) {
            Err(cgroup::Error::Missing { .. }) => Ok(()),
            opened => opened.and_then(action),
        };
        outcome.map_err(failed(format_args!("kill an exec'd process in container {}", container.id())))
    })
    .await
}

impl SessionControl {
    pub(crate) fn exec(process: ExecProcess, terminal: Option<Terminal>) -> Self {
        Self { target: Target::Exec(Arc::new(process)), terminal: terminal.map(Arc::new) }
    }

    pub(crate) fn container(watch: watch::Receiver<Arc<ContainerRecord>>, terminal: Option<Terminal>) -> Self {
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
            Target::Exec(process) => Ok(process.with_oom_kill(process.exited().await?)),
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
