use std::{future::Future, pin::Pin};

use pod::{ContainerConfig, ExecRequest, SessionControl, UserChoice, oci};
use streaming::{Control, Error, Session, Streams};

/// Adapts [`SessionControl`] to [`streaming`].
struct PodControl(SessionControl);

type Later<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

impl Control for PodControl {
    fn resize(&self, size: oci::TerminalSize) -> Later<'_, ()> {
        Box::pin(async move {
            // Resizing fails if the terminal is closed; then the size does not matter.
            let _ = self.0.resize(size).await;
        })
    }

    fn wait(&self) -> Later<'_, Result<i32, Error>> {
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

/// Converts the session of an exec'd process. It ends when the process exits.
pub(super) fn for_exec(session: pod::Session) -> Session {
    let pod::Session { stdin, stdout, stderr, control } = session;
    Session { stdin, stdout, stderr, control: Box::new(PodControl(control)), ends_with_input: false }
}

/// Converts the session of an attached container. The end of the client's input means that the client has disconnected,
/// unless the container's input ends with it: then the container's remaining output is awaited.
pub(super) fn for_attach(session: pod::Session, config: &ContainerConfig) -> Session {
    let closes_container_stdin = config.stdin_once && !config.tty;
    let ends_with_input = session.stdin.is_some() && !closes_container_stdin;
    Session { ends_with_input, ..for_exec(session) }
}
