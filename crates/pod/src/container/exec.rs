//! A command in a container, with streams.

use std::sync::Arc;

use monitor_api::{Attachments, Exec, Role};
use rustix::{
    fd::OwnedFd,
    pipe::{PipeFlags, pipe_with},
};
use tracing::{Instrument, debug_span};

use super::{Container, ExecRequest, UserChoice, identity::Accounts, spec};
use crate::{
    Error, GroupsPolicy, Session,
    engine::{Inner, blocking, detached},
    error::failed,
    identifier, process,
    session::{self, Attached, Command, Input, Output, SessionControl, TerminalStream},
};

/// A command that runs, and our ends of its streams. It is killed when this is dropped before its end.
pub(crate) struct Running {
    pub(crate) command: Command,
    pub(crate) stdin: Option<OwnedFd>,
    pub(crate) stdout: Option<OwnedFd>,
    pub(crate) stderr: Option<OwnedFd>,
    pub(crate) terminal: Option<OwnedFd>,
}

/// Runs it and hands its streams out.
pub(crate) async fn exec(engine: &Arc<Inner>, id: &str, request: ExecRequest) -> Result<Session, Error> {
    let container = engine.container(id)?;
    let size = request.size;
    let running = run(engine, &container, request).await?;
    let input = |input| Box::new(Attached::new(input, None)) as _;
    let (stdin, stdout, stderr, master) = match running.terminal {
        Some(terminal) => {
            let resize = terminal.try_clone().map_err(failed("duplicate a terminal"))?;
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
    let (of, container, id) = (Arc::clone(engine), Arc::clone(container), identifier::fresh()?);
    let mut begun = Begun { engine, id: Some(id.clone()) };
    let started = detached(async move { start(&of, &container, request, id).await }).await;
    if started.is_ok() {
        begun.id = None;
    }
    started
}

/// A command whose start is not answered yet. In a frozen container it never is: who does not wait any longer has it
/// killed, so that it does not run when the container thaws.
struct Begun<'a> {
    engine: &'a Arc<Inner>,
    id: Option<String>,
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        if let (Some(id), Ok(runtime)) = (self.id.take(), tokio::runtime::Handle::try_current()) {
            runtime.spawn(session::kill(self.engine.monitor.clone(), id));
        }
    }
}

async fn start(
    engine: &Arc<Inner>,
    container: &Arc<Container>,
    request: ExecRequest,
    id: String,
) -> Result<Running, Error> {
    let told = |e: Error| e.during(format_args!("exec in container {}", container.id()));
    if !container.is_running() {
        return Err(told(Error::state("it does not run")));
    }
    if request.command.is_empty() {
        return Err(told(Error::invalid("no command")));
    }
    let process = resolve(engine, container, &request).await.map_err(told)?;
    let mut attachments = Attachments::new();
    let (mut stdin, mut stdout, mut stderr) = (None, None, None);
    if !request.tty {
        let pipe = || pipe_with(PipeFlags::CLOEXEC).map_err(failed("make a pipe"));
        if request.stdin {
            let (theirs, ours) = pipe()?;
            attachments.push(Role::Stdin, theirs);
            stdin = Some(ours);
        }
        for (wanted, role, end) in
            [(request.stdout, Role::Stdout, &mut stdout), (request.stderr, Role::Stderr, &mut stderr)]
        {
            if wanted {
                let (ours, theirs) = pipe()?;
                attachments.push(role, theirs);
                *end = Some(ours);
            }
        }
    }
    let exec = Exec { exec: id.clone(), container: container.id().to_owned(), process };
    let started = engine.monitor.exec(exec, attachments).instrument(debug_span!("exec")).await;
    let (wait, terminal, warnings) = started.map_err(told)?;
    for warning in warnings {
        tracing::debug!(container = container.id(), "{warning}");
    }
    Ok(Running { command: Command::new(engine, id, wait), stdin, stdout, stderr, terminal })
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
        process.user = blocking(move || user_inside(&choice, record.pid, record.start_time)).await?;
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
