use std::{future::Future, pin::Pin};

use pod::{ContainerConfig, ExecRequest, SessionControl, UserChoice};
use streaming::{Control, Error, Session, Size, Streams};

struct Controlled(SessionControl);

type Later<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

impl Control for Controlled {
    fn resize(&self, size: Size) -> Later<'_, ()> {
        Box::pin(async move {
            // A terminal that is gone has no size.
            let _ = self.0.resize(size.columns, size.rows).await;
        })
    }

    fn ended(&self) -> Later<'_, Result<i32, Error>> {
        Box::pin(async { Ok(self.0.wait().await?.code) })
    }
}

pub(super) fn request(command: Vec<String>, streams: Streams) -> ExecRequest {
    ExecRequest {
        env: Vec::new(),
        working_dir: None,
        user: UserChoice::Image,
        command,
        tty: streams.tty,
        stdin: streams.stdin,
        stdout: streams.stdout,
        stderr: streams.stderr,
        size: None,
    }
}

/// Its end is the command's.
pub(super) fn of_command(session: pod::Session) -> Session {
    let pod::Session { stdin, stdout, stderr, control } = session;
    Session { stdin, stdout, stderr, control: Box::new(Controlled(control)), ends_with_input: false }
}

/// A client that has no more input has left, unless the container's input ends with it: then its output is waited for.
pub(super) fn of_container(session: pod::Session, config: &ContainerConfig) -> Session {
    let passes_on_its_end = config.stdin_once && !config.tty;
    let ends_with_input = session.stdin.is_some() && !passes_on_its_end;
    Session { ends_with_input, ..of_command(session) }
}
