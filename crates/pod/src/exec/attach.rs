//! `Attach`: the input of a container's init process, and its output from now on.

use std::{os::unix::net::UnixStream, sync::Arc, time::Instant};

use monitor_api::{Attachments, Role};

use super::{
    attached_input::{AttachedInput, OnClose},
    request::ExecRequest,
    session::{Session, SessionControl},
    window::Window,
};
use crate::{
    Error,
    error::failed,
    parts::Parts,
    stdio::{Input, Output, Terminal, TerminalStream, fifos as stdio},
};

pub(crate) async fn attach(parts: &Arc<Parts>, id: &str, request: ExecRequest) -> Result<Session, Error> {
    let container = parts.registry.container(id)?;
    let with_context = |e: Error| e.during(format_args!("attach to container {}", container.id()));
    let config = container.config();
    if !container.has_streams() {
        return Err(with_context(Error::state("the container is not running")));
    }
    container.pipe_calls.check().map_err(with_context)?;
    let terminal = parts.monitor.custody().file(container.id().as_str(), Role::Terminal);
    let terminal = terminal.map_err(failed("duplicate a terminal")).map_err(with_context)?.map(Terminal::new);
    let mut pipes = Attachments::new();
    let mut output = |is_requested: bool, role: Role| {
        if !is_requested {
            return Ok(None);
        }
        // A socket and not a pipe: the monitor can shut it down even if another process has a copy of the descriptor.
        let (ours, theirs) = UnixStream::pair().map_err(failed("create a socket pair"))?;
        pipes.push(role, theirs.into());
        Output::copy(ours).map(Some)
    };
    let stdout = output(request.stdout, Role::Stdout)?;
    let stderr = output(request.stderr && !config.tty, Role::Stderr)?;
    let stdin = match (request.stdin && config.stdin, &terminal) {
        (false, _) => None,
        (true, Some(terminal)) => Some(Input::Terminal(TerminalStream::pair(terminal.duplicate()?)?.1)),
        (true, None) => {
            let directory = parts.registry.records.directory(container.id());
            let pipe =
                stdio::open_stdin(&directory, &container.pipe_calls, Instant::now()).await.map_err(with_context)?;
            pipe.map(Input::pipe).transpose()?
        }
    };
    if !pipes.is_empty() {
        parts.monitor.attach(container.id().as_str(), pipes).await.map_err(with_context)?;
    }
    let once = config.stdin_once && !config.tty;
    let stdin =
        stdin.map(|input| AttachedInput::new(input, once.then(|| OnClose::of_container(&parts.monitor, &container))));
    let window = match terminal {
        Some(terminal) => Some(Window::Terminal(Arc::new(terminal))),
        None if config.tty => Window::remote(&Arc::downgrade(parts), &container, ""),
        None => None,
    };
    let control = SessionControl::container(container.watch(), window);
    if let Some(size) = request.size {
        control.resize(size).await.map_err(with_context)?;
    }
    Ok(Session {
        stdin: stdin.map(|input| Box::new(input) as _),
        stdout: stdout.map(|output| Box::new(output) as _),
        stderr: stderr.map(|output| Box::new(output) as _),
        control,
    })
}
