//! `Exec`: runs a command in a container and returns its streams.

use std::{path::PathBuf, sync::Arc, time::Duration};

use monitor_api::{Attachments, Exec, Role};
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::{task::JoinHandle, time::timeout};
use tracing::{Instrument, debug_span};

use super::{Container, ExecRequest, UserChoice, identity::Accounts, spec};
use crate::{
    Error, ErrorKind, GroupsPolicy, Session,
    engine::Inner,
    error::failed,
    identifier, orphans, process,
    session::{self, AttachedInput, ExecProcess, Input, Output, SessionControl, SharedPipe, Terminal, TerminalStream},
};

/// How long a killed command may take to exit before the request is answered all the same: in a frozen container, or
/// while it hangs in the kernel, it does not exit.
pub(super) const KILL_TIMEOUT: Duration = Duration::from_secs(2);

/// How long reading the container's own `/etc/passwd` and `/etc/group` may take.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(10);

/// A running command and this process's ends of its streams. Dropping it before the command exited kills the command.
pub(crate) struct RunningExec {
    pub(crate) process: ExecProcess,
    pub(crate) stdin: Option<SharedPipe>,
    pub(crate) stdout: Option<SharedPipe>,
    pub(crate) stderr: Option<SharedPipe>,
    pub(crate) terminal: Option<Terminal>,
}

/// Runs a command and returns its streams.
pub(crate) async fn exec(engine: &Arc<Inner>, id: &str, request: ExecRequest) -> Result<Session, Error> {
    let container = engine.container(id)?;
    let size = request.size;
    let running = run(engine, &container, request).await?;
    let input = |input| Box::new(AttachedInput::new(input, None)) as _;
    let (stdin, stdout, stderr, master) = match running.terminal {
        Some(terminal) => {
            let resize = terminal.duplicate()?;
            let (reader, writer) = TerminalStream::pair(terminal)?;
            (Some(Input::Terminal(writer)), Some(Output::Terminal(reader)), None, Some(resize))
        }
        None => (
            running.stdin.map(Input::pipe).transpose()?,
            running.stdout.map(Output::pipe).transpose()?,
            running.stderr.map(Output::pipe).transpose()?,
            None,
        ),
    };
    let control = SessionControl::exec(running.process, master);
    if let Some(size) = size {
        // Fails if the command, and with it the terminal, is gone already.
        let _ = control.resize(size).await;
    }
    Ok(Session {
        stdin: stdin.map(input),
        stdout: stdout.map(|output| Box::new(output) as _),
        stderr: stderr.map(|output| Box::new(output) as _),
        control,
    })
}

/// Starts a command, and returns once its program runs. If the caller is gone by then, the command is killed.
pub(crate) async fn run(
    engine: &Arc<Inner>,
    container: &Arc<Container>,
    request: ExecRequest,
) -> Result<RunningExec, Error> {
    PendingExec::new(engine, container, request)?.started().await
}

/// Like [`run`], with a time limit. `None`: the program did not run within the limit, and never will.
pub(crate) async fn run_with_timeout(
    engine: &Arc<Inner>,
    container: &Arc<Container>,
    request: ExecRequest,
    limit: Duration,
) -> Result<Option<RunningExec>, Error> {
    let mut pending = PendingExec::new(engine, container, request)?;
    match timeout(limit, pending.started()).await {
        Ok(started) => started.map(Some),
        Err(_) => {
            pending.cancel().await;
            Ok(None)
        }
    }
}

/// A command whose start was not answered yet. In a frozen container the answer does not come: a caller that stops
/// waiting has the command killed, so that it does not run once the container thaws.
struct PendingExec {
    engine: Arc<Inner>,
    container: Arc<Container>,
    id: String,
    /// `None` once the start was answered.
    start: Option<JoinHandle<Result<RunningExec, Error>>>,
}

impl PendingExec {
    fn new(engine: &Arc<Inner>, container: &Arc<Container>, request: ExecRequest) -> Result<Self, Error> {
        let (engine, container, id) = (Arc::clone(engine), Arc::clone(container), identifier::generate()?);
        let start = {
            let (engine, container, id) = (Arc::clone(&engine), Arc::clone(&container), id.clone());
            async move { start(&engine, &container, request, id).await }
        };
        Ok(Self { engine, container, id, start: Some(tokio::spawn(start.in_current_span())) })
    }

    async fn started(&mut self) -> Result<RunningExec, Error> {
        let bug = |e: &dyn std::fmt::Display| Error::internal(format!("a bug: {e}"));
        let start = self.start.as_mut().ok_or_else(|| bug(&"the start of a command was awaited twice"))?;
        let started = start.await;
        self.start = None;
        started.map_err(|e| bug(&e))?
    }

    /// Kills the command and waits for at most [`KILL_TIMEOUT`].
    async fn cancel(mut self) {
        if let Some(kill) = self.take_kill() {
            // The command may hang in the kernel for longer; the task continues.
            let _ = timeout(KILL_TIMEOUT, tokio::spawn(kill)).await;
        }
    }

    /// Returns the future that kills the command; `None` if its start was answered.
    fn take_kill(&mut self) -> Option<impl Future<Output = ()> + Send + 'static> {
        let start = self.start.take()?;
        Some(kill_pending(Arc::clone(&self.engine), Arc::clone(&self.container), self.id.clone(), start))
    }
}

impl Drop for PendingExec {
    fn drop(&mut self) {
        if let (Some(kill), Ok(runtime)) = (self.take_kill(), tokio::runtime::Handle::try_current()) {
            runtime.spawn(kill);
        }
    }
}

/// Kills a command that is being started. Repeats until the start is answered, because the monitor may receive the
/// request to kill before the request to start.
async fn kill_pending(
    engine: Arc<Inner>,
    container: Arc<Container>,
    id: String,
    mut start: JoinHandle<Result<RunningExec, Error>>,
) {
    let mut interval = Duration::from_millis(10);
    loop {
        if let Err(error) = session::kill(&engine, &container, &id).await {
            tracing::warn!(container = container.id(), "kill a command that no client waits for: {error}");
        }
        match timeout(interval, &mut start).await {
            Err(_) => interval = (interval * 2).min(Duration::from_secs(1)),
            // It started all the same. If killing it fails, the next exec in this container reports that.
            Ok(Ok(Ok(running))) => return drop(running.process.kill().await),
            Ok(_) => return,
        }
    }
}

async fn start(
    engine: &Arc<Inner>,
    container: &Arc<Container>,
    request: ExecRequest,
    id: String,
) -> Result<RunningExec, Error> {
    let with_context = |e: Error| e.during(format_args!("exec in container {}", container.id()));
    if !container.is_running() {
        return Err(with_context(Error::state("the container is not running")));
    }
    if request.command.is_empty() {
        return Err(with_context(Error::invalid("the command is empty")));
    }
    container.pipe_calls.check().map_err(with_context)?;
    let process = resolve(engine, container, &request).await.map_err(with_context)?;
    let mut attachments = Attachments::new();
    let (mut stdin, mut stdout, mut stderr) = (None, None, None);
    if !request.tty {
        let pipe = || pipe_with(PipeFlags::CLOEXEC).map_err(failed("create a pipe"));
        if request.stdin {
            let (read_end, write_end) = pipe()?;
            attachments.push(Role::Stdin, read_end);
            stdin = Some(SharedPipe::anonymous(write_end, &container.pipe_calls, &engine.pipes));
        }
        for (is_requested, role, end) in
            [(request.stdout, Role::Stdout, &mut stdout), (request.stderr, Role::Stderr, &mut stderr)]
        {
            if is_requested {
                let (read_end, write_end) = pipe()?;
                attachments.push(role, write_end);
                *end = Some(SharedPipe::anonymous(read_end, &container.pipe_calls, &engine.pipes));
            }
        }
    }
    let exec = Exec { exec: id.clone(), container: container.id().to_owned(), process };
    let started = engine.monitor.exec(exec, attachments).instrument(debug_span!("exec")).await;
    let (wait, terminal, warnings) = match started {
        Ok(started) => started,
        Err(error) => {
            let monitor_died = error.kind == ErrorKind::Unavailable;
            kill_unanswered(engine, container, id, monitor_died);
            return Err(with_context(error));
        }
    };
    for warning in warnings {
        tracing::debug!(container = container.id(), "{warning}");
    }
    Ok(RunningExec { process: ExecProcess::new(engine, container, id, wait), stdin, stdout, stderr, terminal })
}

/// Kills a command whose start failed. A monitor that died before it answered may have started the command, and nothing
/// else would kill it. If the monitor refused the command, there is nothing to kill.
fn kill_unanswered(engine: &Arc<Inner>, container: &Arc<Container>, id: String, monitor_died: bool) {
    let (engine, container) = (Arc::clone(engine), Arc::clone(container));
    offload::spawn(async move {
        if let Err(error) = session::kill(&engine, &container, &id).await {
            tracing::warn!(container = container.id(), "kill a command whose start was not answered: {error}");
        }
        if monitor_died {
            orphans::reap_soon().await;
        }
    });
}

/// Returns the container's process specification with the request's changes applied.
async fn resolve(
    engine: &Arc<Inner>,
    container: &Arc<Container>,
    request: &ExecRequest,
) -> Result<oci::Process, Error> {
    let mut process = container.process(&engine.records)?.clone();
    process.args.clone_from(&request.command);
    process.terminal = request.tty;
    process.oom_score_adj = container.record().oom_score_adj.or(process.oom_score_adj);
    process.console_size = request.size;
    if request.tty && !process.env.iter().any(|entry| entry.starts_with("TERM=")) {
        process.env.push("TERM=xterm".into());
    }
    for (name, value) in &request.env {
        spec::set(&mut process.env, format!("{name}={value}"));
    }
    if let Some(dir) = &request.working_dir {
        process.cwd = spec::absolute(dir);
    }
    if request.user != UserChoice::Image {
        let choice = request.user.clone();
        let record = container.record();
        // The container may have mounted its `/etc` from a file server that never answers.
        let owner = vec![PathBuf::from(format!("container {}", container.id()))];
        let look_up = move |_: &_| user_inside(&choice, record.pid, record.start_time);
        process.user = engine.host_files.visit(owner, LOOKUP_TIMEOUT, look_up).await?;
    }
    Ok(process)
}

/// Looks up a user in the container's current root.
fn user_inside(choice: &UserChoice, pid: u32, start_time: u64) -> Result<oci::User, Error> {
    let root = format!("/proc/{pid}/root");
    let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC;
    let opened =
        rustix::fs::open(&root, flags, rustix::fs::Mode::empty()).map_err(failed(format_args!("open {root}")))?;
    if process::find(pid, start_time).is_none() {
        return Err(Error::state("the container is not running"));
    }
    Accounts::read(&opened)?.resolve(choice, "", &[], GroupsPolicy::Merge)
}
