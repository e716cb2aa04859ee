//! This process's ends of the streams of a command.

use monitor_api::{Attachments, Role};
use rustix::pipe::{PipeFlags, pipe_with};

use super::request::ExecRequest;
use crate::{
    Error,
    error::failed,
    parts::Parts,
    stdio::{SharedPipe, Terminal},
    store::Container,
};

/// This process's ends of the streams of a command.
#[derive(Default)]
pub(super) struct Streams {
    pub(super) stdin: Option<SharedPipe>,
    pub(super) stdout: Option<SharedPipe>,
    pub(super) stderr: Option<SharedPipe>,
    pub(super) terminal: Option<Terminal>,
}

impl Streams {
    /// Creates the requested pipes, and returns the command's ends of them as attachments. A command with a terminal
    /// gets it from the monitor.
    pub(super) fn create(
        parts: &Parts,
        container: &Container,
        request: &ExecRequest,
    ) -> Result<(Self, Attachments), Error> {
        let (mut streams, mut attachments) = (Self::default(), Attachments::new());
        if request.tty {
            return Ok((streams, attachments));
        }
        let pipe = || pipe_with(PipeFlags::CLOEXEC).map_err(failed("create a pipe"));
        let shared = |end| SharedPipe::anonymous(end, &container.pipe_calls, &parts.pipes);
        if request.stdin {
            let (read_end, write_end) = pipe()?;
            attachments.push(Role::Stdin, read_end);
            streams.stdin = Some(shared(write_end));
        }
        let outputs =
            [(request.stdout, Role::Stdout, &mut streams.stdout), (request.stderr, Role::Stderr, &mut streams.stderr)];
        for (is_requested, role, end) in outputs {
            if is_requested {
                let (read_end, write_end) = pipe()?;
                attachments.push(role, write_end);
                *end = Some(shared(read_end));
            }
        }
        Ok((streams, attachments))
    }
}
