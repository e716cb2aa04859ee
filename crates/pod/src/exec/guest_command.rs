//! A command in a container of a virtual machine: its streams are ports, whose ends on the node are pipes.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use agent_api::{Exec, ProcessId};
use rustix::{
    fd::OwnedFd,
    pipe::{PipeFlags, pipe_with},
};
use vm::guest::ErrorKind;

use super::{
    request::{ExecRequest, SessionExit, UNKNOWN},
    streams::Streams,
};
use crate::{
    Error,
    container::vm::{PortPipes, connection_of, drain, from_guest, remove_ports},
    error::failed,
    parts::Parts,
    stdio::{SharedPipe, shared_pipe::close_all},
    store::Container,
};

/// How long the rest of its output may take to reach a client that does not read.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(60);

/// A command that a guest has started.
pub(super) struct GuestWait {
    id: String,
    container: Arc<Container>,
    _outputs: HeldOutputs,
}

/// Read ends of the output, which stay open until the ports are removed: the virtual machine monitor must not write to a
/// pipe without a reader.
#[derive(Default)]
struct HeldOutputs(Vec<OwnedFd>);

impl Drop for HeldOutputs {
    fn drop(&mut self) {
        close_all(std::mem::take(&mut self.0));
    }
}

/// Has the guest start a command.
pub(super) async fn start(
    parts: &Arc<Parts>,
    container: &Arc<Container>,
    request: &ExecRequest,
    (id, mut process): (&str, oci::Process),
) -> Result<(GuestWait, Streams), Error> {
    process.apparmor_profile = None;
    process.selinux_label = None;
    let (streams, pipes, outputs) = pipes(parts, container, request)?;
    let connection = connection_of(parts, container).await?;
    let ports = pipes.add(&connection.qemu, id).await?;
    let exec = Exec { container: container.id().to_string(), id: id.to_owned(), process, streams: ports };
    if let Err(error) = connection.guest.exec(exec).await {
        // It may have been started, if the answer was lost.
        let _ = connection.guest.delete(&ProcessId::exec(container.id().as_str(), id)).await;
        remove_ports(&connection.qemu, id).await;
        return Err(from_guest(error));
    }
    Ok((GuestWait { id: id.to_owned(), container: Arc::clone(container), _outputs: outputs }, streams))
}

/// Creates the pipes of a command: this process's ends, those of the ports, and duplicates of the read ends.
fn pipes(
    parts: &Parts,
    container: &Container,
    request: &ExecRequest,
) -> Result<(Streams, PortPipes, HeldOutputs), Error> {
    let (mut streams, mut pipes) = (Streams::default(), PortPipes::default());
    let mut held = HeldOutputs::default();
    let pipe = || pipe_with(PipeFlags::CLOEXEC).map_err(failed("create a pipe"));
    let shared = |end| SharedPipe::anonymous(end, &container.pipe_calls, &parts.pipes);
    if request.stdin {
        let (read_end, write_end) = pipe()?;
        pipes.stdin = Some(read_end);
        streams.stdin = Some(shared(write_end));
    }
    let outputs = [
        (request.stdout || request.tty, &mut pipes.stdout, &mut streams.stdout),
        (request.stderr && !request.tty, &mut pipes.stderr, &mut streams.stderr),
    ];
    for (is_requested, port, end) in outputs {
        if is_requested {
            let (read_end, write_end) = pipe()?;
            held.0.push(read_end.try_clone().map_err(failed("duplicate a pipe"))?);
            *port = Some(write_end);
            *end = Some(shared(read_end));
        }
    }
    Ok((streams, pipes, held))
}

impl GuestWait {
    /// Waits until the command has exited, and its output has reached its pipes.
    pub(super) async fn exited(self, parts: &Weak<Parts>) -> Result<SessionExit, Error> {
        let gone = || Error::unavailable("the engine has ended");
        let connection = connection_of(&*parts.upgrade().ok_or_else(gone)?, &self.container).await?;
        let id = ProcessId::exec(self.container.id().as_str(), self.id.as_str());
        let exit = match connection.guest.wait(&id).await {
            Ok(exit) => SessionExit { code: exit.code.clamp(0, 255), oom_killed: exit.oom_killed },
            Err(error) if error.kind == ErrorKind::NotFound => SessionExit { code: UNKNOWN, oom_killed: false },
            Err(error) => {
                // Over a new connection, if the virtual machine still runs.
                drop(connection);
                if let Some(parts) = parts.upgrade()
                    && let Ok(connection) = connection_of(&parts, &self.container).await
                {
                    let _ = connection.guest.delete(&id).await;
                    remove_ports(&connection.qemu, &self.id).await;
                }
                return Err(from_guest(error));
            }
        };
        drain(&connection.qemu, &self.id, DRAIN_TIMEOUT).await;
        remove_ports(&connection.qemu, &self.id).await;
        if let Err(error) = connection.guest.delete(&id).await {
            tracing::debug!(container = self.container.id().as_str(), "{error}");
        }
        Ok(exit)
    }
}
