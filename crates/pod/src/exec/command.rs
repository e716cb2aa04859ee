//! A command in a container, from its request to its exit.
//!
//! ```text
//! Starting ──▶ Running ──▶ Ended
//!     └── the start failed ──▲
//! ```
//! One task drives a command through these phases, no matter whether a client still waits for it. A [`Command`] that is
//! dropped before it has ended is killed with all its descendants.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use monitor_api::Exec;
use tokio::{
    runtime::Handle,
    sync::{oneshot, watch},
    time::timeout,
};
use tracing::{Instrument, Span, debug_span};

use super::{
    guest_command::{self, GuestWait},
    kill::{kill, kill_unanswered, with_group},
    request::{ExecRequest, SessionExit, UNKNOWN},
    resolve::resolve,
    shim_command::{self, ShimWait},
    streams::Streams,
    window::Window,
};
use crate::{
    Error, ErrorKind, clock,
    container::driver::Driver,
    monitor::ExecWait,
    parts::Parts,
    store::{Container, SIGKILLED, identifier},
};

/// How long a killed command may take to exit before the request is answered all the same: in a frozen container, or
/// while it hangs in the kernel, it does not exit.
pub(super) const KILL_TIMEOUT: Duration = Duration::from_secs(2);

/// A command in a container.
pub(super) struct Command {
    id: String,
    container: Arc<Container>,
    parts: Weak<Parts>,
    phase: watch::Receiver<Phase>,
}

/// Phase of a command.
#[derive(Clone)]
enum Phase {
    /// Its start was not answered yet. In a frozen container the answer does not come.
    Starting,
    Running,
    /// It exited, or could not be started.
    Ended(Result<SessionExit, Error>),
}

/// How the exit of a command is waited for.
enum CommandWait {
    Monitor(ExecWait),
    Shim(ShimWait),
    Guest(GuestWait),
}

/// A command that was requested. A caller that stops waiting has it killed, so that it does not run once the container
/// thaws.
struct Request {
    command: Command,
    streams: oneshot::Receiver<Result<Streams, Error>>,
}

impl Command {
    /// Starts a command, and returns once its program runs.
    pub(super) async fn start(
        parts: &Arc<Parts>,
        container: &Arc<Container>,
        request: ExecRequest,
    ) -> Result<(Self, Streams), Error> {
        let mut request = Request::new(parts, container, request)?;
        let streams = request.started().await?;
        Ok((request.command, streams))
    }

    /// Like [`Self::start`], with a time limit. `None`: the program did not run within the limit, and never will.
    pub(super) async fn start_within(
        limit: Duration,
        parts: &Arc<Parts>,
        container: &Arc<Container>,
        request: ExecRequest,
    ) -> Result<Option<(Self, Streams)>, Error> {
        let mut request = Request::new(parts, container, request)?;
        match timeout(limit, request.started()).await {
            Ok(streams) => Ok(Some((request.command, streams?))),
            Err(_) => {
                if let Some(kill) = request.command.take_kill() {
                    // The command may hang in the kernel for longer; the task continues.
                    let _ = timeout(KILL_TIMEOUT, tokio::spawn(kill)).await;
                }
                Ok(None)
            }
        }
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// Waits until it has exited.
    pub(super) async fn exited(&self) -> Result<SessionExit, Error> {
        let mut phase = self.phase.clone();
        match phase.wait_for(|phase| matches!(phase, Phase::Ended(_))).await.as_deref() {
            Ok(Phase::Ended(exit)) => exit.clone(),
            _ => Err(Error::unavailable("its exit can no longer be watched")),
        }
    }

    /// Sets `oom_killed`. The kernel counts OOM kills for the whole container, whose memory an exec'd process shares,
    /// and the monitor reports whether there was any: a kill that was not attributed to an earlier exec is attributed
    /// to this one. It is also added to the container's timeline.
    pub(super) fn with_oom_kill(&self, exit: SessionExit) -> SessionExit {
        let Some(parts) = self.parts.upgrade().filter(|_| exit.code == SIGKILLED) else { return exit };
        let oom_killed = self.container.has_new_oom_kill(&parts.node.trees);
        if oom_killed {
            let now = clock::now();
            self.container.part("a command (exec) was killed: out of memory".into(), now, now, "");
        }
        SessionExit { oom_killed, ..exit }
    }

    /// Returns what the window size of a shim's terminal is changed with; `None` for other commands.
    pub(super) fn shim_window(&self) -> Option<Window> {
        Window::remote(&self.parts, &self.container, &self.id)
    }

    /// Kills it with all its descendants, and returns when all of them are gone.
    pub(super) async fn kill(&self) -> Result<(), Error> {
        let Some(parts) = self.parts.upgrade() else { return Ok(()) };
        kill_until_gone(&parts, &self.container, &self.id, &self.phase).await?;
        self.exited().await.map(drop)
    }

    /// Returns the future that kills the command; `None` if it has ended, or is being killed already.
    fn take_kill(&mut self) -> Option<impl Future<Output = ()> + Send + 'static> {
        let parts = std::mem::take(&mut self.parts).upgrade()?;
        let phase = self.phase.clone();
        if matches!(*phase.borrow(), Phase::Ended(_)) {
            return None;
        }
        Some(kill_unwanted(parts, Arc::clone(&self.container), self.id.clone(), phase))
    }
}

impl Drop for Command {
    fn drop(&mut self) {
        if let (Some(kill), Ok(runtime)) = (self.take_kill(), Handle::try_current()) {
            runtime.spawn(kill);
        }
    }
}

impl Request {
    fn new(parts: &Arc<Parts>, container: &Arc<Container>, request: ExecRequest) -> Result<Self, Error> {
        let (sender, phase) = watch::channel(Phase::Starting);
        let (started, streams) = oneshot::channel();
        let id = identifier::generate()?;
        let command = Command { id: id.clone(), container: Arc::clone(container), parts: Arc::downgrade(parts), phase };
        let (parts, container) = (Arc::clone(parts), Arc::clone(container));
        // The span of the request ends with the start, and not with the command.
        let span = Span::current();
        tokio::spawn(async move {
            let outcome = start(&parts, &container, request, &id).instrument(span).await;
            // The engine may be dropped while the command runs.
            let weak_parts = Arc::downgrade(&parts);
            drop(parts);
            // The phase is published before the caller is answered: its drop of the command depends on it.
            match outcome {
                Ok((wait, streams)) => {
                    sender.send_replace(Phase::Running);
                    let _ = started.send(Ok(streams));
                    let exited = match wait {
                        CommandWait::Monitor(wait) => wait_for_exit(weak_parts, container, id, wait).await,
                        CommandWait::Shim(wait) => wait.exited().await,
                        CommandWait::Guest(wait) => wait.exited(&weak_parts).await,
                    };
                    sender.send_replace(Phase::Ended(exited));
                }
                Err(error) => {
                    sender.send_replace(Phase::Ended(Err(error.clone())));
                    let _ = started.send(Err(error));
                }
            }
        });
        Ok(Self { command, streams })
    }

    async fn started(&mut self) -> Result<Streams, Error> {
        let bug = |_| Err(Error::internal("a bug: the task of a command ended before the command was started"));
        (&mut self.streams).await.unwrap_or_else(bug)
    }
}

/// Kills a command with all its descendants, and returns when all of them are gone.
async fn kill_until_gone(
    parts: &Arc<Parts>,
    container: &Arc<Container>,
    id: &str,
    phase: &watch::Receiver<Phase>,
) -> Result<(), Error> {
    /// The kernel does not notify when the last killed process is gone. Most are gone after a moment. Each request
    /// makes the monitor walk the cgroup, so the delay grows.
    const RETRY_DELAY: Duration = Duration::from_millis(2);
    const RETRY_DELAY_MAX: Duration = Duration::from_millis(64);
    let mut delay = RETRY_DELAY;
    while kill(parts, container, id).await? {
        // A shim or a guest knows only the process itself, and may answer that it exists after it reported its exit.
        if Driver::of(container) != Driver::Monitor && matches!(*phase.borrow(), Phase::Ended(_)) {
            return Ok(());
        }
        tokio::time::sleep(delay).await;
        delay = (2 * delay).min(RETRY_DELAY_MAX);
    }
    Ok(())
}

/// Kills a command that no client waits for. One that is being started is killed until its start is answered, because
/// the monitor may receive the request to kill before the request to start; if it started all the same, this returns
/// when it is gone.
async fn kill_unwanted(parts: Arc<Parts>, container: Arc<Container>, id: String, mut phase: watch::Receiver<Phase>) {
    let mut interval = Duration::from_millis(10);
    loop {
        let was_running = matches!(*phase.borrow(), Phase::Running);
        if let Err(error) = kill(&parts, &container, &id).await {
            tracing::warn!(container = container.id().as_str(), "kill a command that no client waits for: {error}");
        }
        if was_running {
            return;
        }
        let answered = timeout(interval, phase.wait_for(|phase| !matches!(phase, Phase::Starting))).await;
        match answered.map(|phase| phase.is_ok_and(|phase| matches!(*phase, Phase::Running))) {
            Err(_) => interval = (interval * 2).min(Duration::from_secs(1)),
            // If killing it fails, the next exec in this container reports that.
            Ok(true) => {
                if kill_until_gone(&parts, &container, &id, &phase).await.is_ok() {
                    let _ = phase.wait_for(|phase| matches!(phase, Phase::Ended(_))).await;
                }
                return;
            }
            Ok(false) => return,
        }
    }
}

/// Has the command started by who drives the container.
async fn start(
    parts: &Arc<Parts>,
    container: &Arc<Container>,
    request: ExecRequest,
    id: &str,
) -> Result<(CommandWait, Streams), Error> {
    let with_context = |e: Error| e.during(format_args!("exec in container {}", container.id()));
    if !container.is_running() {
        return Err(with_context(Error::state("the container is not running")));
    }
    if request.command.is_empty() {
        return Err(with_context(Error::invalid("the command is empty")));
    }
    container.pipe_calls.check().map_err(with_context)?;
    let process = resolve(parts, container, &request).await.map_err(with_context)?;
    match Driver::of(container) {
        Driver::Monitor => {
            let (wait, streams) = start_with_monitor(parts, container, &request, (id, process)).await?;
            Ok((CommandWait::Monitor(wait), streams))
        }
        Driver::Shim => {
            let started = shim_command::start(parts, container, &request, (id, process)).await;
            started.map(|(wait, streams)| (CommandWait::Shim(wait), streams)).map_err(with_context)
        }
        Driver::Vm => {
            let started = guest_command::start(parts, container, &request, (id, process)).await;
            started.map(|(wait, streams)| (CommandWait::Guest(wait), streams)).map_err(with_context)
        }
    }
}

/// Has the monitor execute the command.
async fn start_with_monitor(
    parts: &Arc<Parts>,
    container: &Arc<Container>,
    request: &ExecRequest,
    (id, process): (&str, oci::Process),
) -> Result<(ExecWait, Streams), Error> {
    let with_context = |e: Error| e.during(format_args!("exec in container {}", container.id()));
    let (mut streams, attachments) = Streams::create(parts, container, request)?;
    let exec = Exec { exec: id.to_owned(), container: container.id().to_string(), process };
    let started = parts.monitor.exec(exec, attachments).instrument(debug_span!("exec")).await;
    let (wait, terminal, warnings) = started.map_err(|error| {
        let monitor_died = error.kind == ErrorKind::Unavailable;
        kill_unanswered(parts, container, id.to_owned(), monitor_died);
        with_context(error)
    })?;
    for warning in warnings {
        tracing::debug!(container = container.id().as_str(), "{warning}");
    }
    streams.terminal = terminal;
    Ok((wait, streams))
}

/// Waits until an exec'd process has exited. If the connection to its monitor was lost, no exit is reported and nothing
/// else removes the cgroup of the process, so it is removed here.
async fn wait_for_exit(
    parts: Weak<Parts>,
    container: Arc<Container>,
    id: String,
    mut wait: ExecWait,
) -> Result<SessionExit, Error> {
    if let Some(status) = wait.reported_exit().await {
        return Ok(SessionExit { code: status.code.unwrap_or(UNKNOWN), oom_killed: status.oom_killed });
    }
    let code = wait.exit_code().await?;
    if let Some(parts) = parts.upgrade() {
        // Processes that it left running stay in its cgroup, which is then removed with the container.
        let removed = with_group(&parts, &container, &id, |group| match group.is_empty()? {
            true => group.remove(),
            false => Ok(()),
        });
        if let Err(error) = removed.await {
            tracing::warn!("{error}");
        }
    }
    Ok(SessionExit { code: code.unwrap_or(UNKNOWN), oom_killed: false })
}
