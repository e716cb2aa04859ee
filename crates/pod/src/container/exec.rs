//! A command in a container, with streams.

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
    session::{self, Attached, Command, Input, Output, SessionControl, SharedPipe, Terminal, TerminalStream},
};

/// How long what was killed may take to end before it is answered all the same: in a frozen container, or in the
/// kernel, it does not.
pub(super) const KILLED: Duration = Duration::from_secs(2);

/// How long the container's own `/etc/passwd` and `/etc/group` may take to be read.
const LOOK_UP: Duration = Duration::from_secs(10);

/// A command that runs, and our ends of its streams. It is killed when this is dropped before its end.
pub(crate) struct Running {
    pub(crate) command: Command,
    pub(crate) stdin: Option<SharedPipe>,
    pub(crate) stdout: Option<SharedPipe>,
    pub(crate) stderr: Option<SharedPipe>,
    pub(crate) terminal: Option<Terminal>,
}

/// Runs it and hands its streams out.
pub(crate) async fn exec(engine: &Arc<Inner>, id: &str, request: ExecRequest) -> Result<Session, Error> {
    let container = engine.container(id)?;
    let size = request.size;
    let running = run(engine, &container, request).await?;
    let input = |input| Box::new(Attached::new(input, None)) as _;
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
    let control = SessionControl::command(running.command, master);
    if let Some((columns, rows)) = size {
        // A command may have ended, and its terminal with it.
        let _ = control.resize(columns, rows).await;
    }
    Ok(Session {
        stdin: stdin.map(input),
        stdout: stdout.map(|output| Box::new(output) as _),
        stderr: stderr.map(|output| Box::new(output) as _),
        control,
    })
}

/// Starts it: answers when its program runs. A caller that is gone by then leaves nothing that runs.
pub(crate) async fn run(
    engine: &Arc<Inner>,
    container: &Arc<Container>,
    request: ExecRequest,
) -> Result<Running, Error> {
    Begun::new(engine, container, request)?.started().await
}

/// The same, for so long; `None`: its program did not run by then, and never will.
pub(crate) async fn run_within(
    engine: &Arc<Inner>,
    container: &Arc<Container>,
    request: ExecRequest,
    limit: Duration,
) -> Result<Option<Running>, Error> {
    let mut begun = Begun::new(engine, container, request)?;
    match timeout(limit, begun.started()).await {
        Ok(started) => started.map(Some),
        Err(_) => {
            begun.end().await;
            Ok(None)
        }
    }
}

/// A command whose start is not answered yet. In a frozen container it never is: who does not wait any longer has it
/// killed, so that it does not run when the container thaws.
struct Begun {
    engine: Arc<Inner>,
    container: Arc<Container>,
    id: String,
    /// `None` once it is answered.
    start: Option<JoinHandle<Result<Running, Error>>>,
}

impl Begun {
    fn new(engine: &Arc<Inner>, container: &Arc<Container>, request: ExecRequest) -> Result<Self, Error> {
        let (engine, container, id) = (Arc::clone(engine), Arc::clone(container), identifier::fresh()?);
        let (of, within, named) = (Arc::clone(&engine), Arc::clone(&container), id.clone());
        let start = async move { start(&of, &within, request, named).await };
        Ok(Self { engine, container, id, start: Some(tokio::spawn(start.in_current_span())) })
    }

    async fn started(&mut self) -> Result<Running, Error> {
        let bug = |e: &dyn std::fmt::Display| Error::internal(format!("a bug: {e}"));
        let start = self.start.as_mut().ok_or_else(|| bug(&"a command is started once"))?;
        let started = start.await;
        self.start = None;
        started.map_err(|e| bug(&e))?
    }

    /// Has it killed, and waits a moment for that.
    async fn end(mut self) {
        if let Some(ending) = self.ending() {
            // In the kernel it may hang for longer; the task goes on.
            let _ = timeout(KILLED, tokio::spawn(ending)).await;
        }
    }

    fn ending(&mut self) -> Option<impl Future<Output = ()> + Send + 'static> {
        let start = self.start.take()?;
        Some(end(Arc::clone(&self.engine), Arc::clone(&self.container), self.id.clone(), start))
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        if let (Some(ending), Ok(runtime)) = (self.ending(), tokio::runtime::Handle::try_current()) {
            runtime.spawn(ending);
        }
    }
}

/// Kills what is being started, also when the monitor hears of its start only after its end was asked for first.
async fn end(engine: Arc<Inner>, container: Arc<Container>, id: String, mut start: JoinHandle<Result<Running, Error>>) {
    let mut again = Duration::from_millis(10);
    loop {
        if let Err(error) = session::kill(&engine, &container, &id).await {
            tracing::warn!("end a command that nobody waits for: {error}");
        }
        match timeout(again, &mut start).await {
            Err(_) => again = (again * 2).min(Duration::from_secs(1)),
            // It began to run all the same. What hinders its end is the next one's to tell.
            Ok(Ok(Ok(running))) => return drop(running.command.kill().await),
            Ok(_) => return,
        }
    }
}

async fn start(
    engine: &Arc<Inner>,
    container: &Arc<Container>,
    request: ExecRequest,
    id: String,
) -> Result<Running, Error> {
    let named = |e: Error| e.during(format_args!("exec in container {}", container.id()));
    if !container.is_running() {
        return Err(named(Error::state("it does not run")));
    }
    if request.command.is_empty() {
        return Err(named(Error::invalid("no command")));
    }
    container.pipe_calls.check().map_err(named)?;
    let process = resolve(engine, container, &request).await.map_err(named)?;
    let mut attachments = Attachments::new();
    let (mut stdin, mut stdout, mut stderr) = (None, None, None);
    if !request.tty {
        let pipe = || pipe_with(PipeFlags::CLOEXEC).map_err(failed("make a pipe"));
        if request.stdin {
            let (theirs, ours) = pipe()?;
            attachments.push(Role::Stdin, theirs);
            stdin = Some(SharedPipe::anonymous(ours, &container.pipe_calls, &engine.pipes));
        }
        for (wanted, role, end) in
            [(request.stdout, Role::Stdout, &mut stdout), (request.stderr, Role::Stderr, &mut stderr)]
        {
            if wanted {
                let (ours, theirs) = pipe()?;
                attachments.push(role, theirs);
                *end = Some(SharedPipe::anonymous(ours, &container.pipe_calls, &engine.pipes));
            }
        }
    }
    let exec = Exec { exec: id.clone(), container: container.id().to_owned(), process };
    let started = engine.monitor.exec(exec, attachments).instrument(debug_span!("exec")).await;
    let (wait, terminal, warnings) = match started {
        Ok(started) => started,
        Err(error) => {
            let monitor_died = error.kind == ErrorKind::Unavailable;
            end_unanswered(engine, container, id, monitor_died);
            return Err(named(error));
        }
    };
    for warning in warnings {
        tracing::debug!(container = container.id(), "{warning}");
    }
    Ok(Running { command: Command::new(engine, container, id, wait), stdin, stdout, stderr, terminal })
}

/// A monitor that died before its answer may have begun the command, which nobody else would end. One that was refused
/// is not there.
fn end_unanswered(engine: &Arc<Inner>, container: &Arc<Container>, id: String, monitor_died: bool) {
    let (engine, container) = (Arc::clone(engine), Arc::clone(container));
    offload::spawn(async move {
        if let Err(error) = session::kill(&engine, &container, &id).await {
            tracing::warn!(container = container.id(), "end a command whose start was not answered: {error}");
        }
        if monitor_died {
            orphans::reap_soon().await;
        }
    });
}

/// The container's own process with what the request changes.
async fn resolve(
    engine: &Arc<Inner>,
    container: &Arc<Container>,
    request: &ExecRequest,
) -> Result<oci::Process, Error> {
    let mut process = container.process(&engine.records)?.clone();
    process.args.clone_from(&request.command);
    process.terminal = request.tty;
    process.oom_score_adj = container.record().oom_score_adj.or(process.oom_score_adj);
    process.console_size = request.size.map(|(width, height)| oci::ConsoleSize { height, width });
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
        // The container may have mounted its `/etc` from a server that never answers.
        let whose = vec![PathBuf::from(format!("container {}", container.id()))];
        let look_up = move |_: &_| user_inside(&choice, record.pid, record.start_time);
        process.user = engine.host_files.visit(whose, LOOK_UP, look_up).await?;
    }
    Ok(process)
}

/// Looked up in the root as the container has it now.
fn user_inside(choice: &UserChoice, pid: u32, start_time: u64) -> Result<oci::User, Error> {
    let root = format!("/proc/{pid}/root");
    let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC;
    let opened =
        rustix::fs::open(&root, flags, rustix::fs::Mode::empty()).map_err(failed(format_args!("open {root}")))?;
    if process::find(pid, start_time).is_none() {
        return Err(Error::state("it does not run"));
    }
    Accounts::read(&opened)?.resolve(choice, "", &[], GroupsPolicy::Merge)
}
