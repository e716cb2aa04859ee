//! `Exec`: runs a command in a container and returns its streams.

use std::sync::Arc;

use super::{
    attached_input::{AttachedInput, OnClose},
    command::Command,
    request::ExecRequest,
    session::{Session, SessionControl},
    window::Window,
};
use crate::{
    Error,
    parts::Parts,
    stdio::{Input, Output, TerminalStream},
};

/// Runs a command and returns its streams.
pub(crate) async fn exec(parts: &Arc<Parts>, id: &str, request: ExecRequest) -> Result<Session, Error> {
    let container = parts.registry.container(id)?;
    let (size, request_is_terminal) = (request.size, request.tty);
    let (command, streams) = Command::start(parts, &container, request).await?;
    let (is_terminal, on_close) = (request_is_terminal, OnClose::of_command(&container, command.id()));
    let input = |input| Box::new(AttachedInput::new(input, on_close)) as _;
    let (stdin, stdout, stderr, window) = match streams.terminal {
        Some(terminal) => {
            let resize = terminal.duplicate()?;
            let (reader, writer) = TerminalStream::pair(terminal)?;
            let window = Window::Terminal(Arc::new(resize));
            (Some(Input::Terminal(writer)), Some(Output::Terminal(reader)), None, Some(window))
        }
        None => (
            streams.stdin.map(Input::pipe).transpose()?,
            streams.stdout.map(Output::pipe).transpose()?,
            streams.stderr.map(Output::pipe).transpose()?,
            command.shim_window().filter(|_| is_terminal),
        ),
    };
    let control = SessionControl::exec(command, window);
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
