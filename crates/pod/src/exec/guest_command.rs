//! A command in a container of a virtual machine: its streams are ports, whose ends on the node are pipes.

use std::{
    os::fd::AsRawFd,
    path::{Path, PathBuf},
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use agent_api::{Exec, ProcessId};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::OwnedFd,
    fs::OFlags,
    pipe::{PipeFlags, pipe_with},
};
use vm::guest::ErrorKind;

use super::{
    request::{ExecRequest, SessionExit, UNKNOWN},
    streams::Streams,
};
use crate::{
    Error,
    container::vm::{PortPipes, connection, connection_of, drain, from_guest, remove_ports},
    error::failed,
    parts::Parts,
    stdio::{SharedPipe, fifos, shared_pipe::close_all},
    store::{Container, GuestExec, SIGKILLED, VmConnection},
};

/// How long output that nobody needs may take to be discarded.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a client may take to read the output of a command that has exited.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);
/// How often it is checked whether the client is gone.
const CLIENT_INTERVAL: Duration = Duration::from_millis(100);

/// A command that a guest has started.
pub(super) struct GuestWait {
    id: String,
    container: Arc<Container>,
    guest_exec: GuestExec,
    outputs: HeldOutputs,
}

/// Duplicates of the ends of the output. The read ends are open while the command runs: the virtual machine monitor must not
/// write to a pipe without a reader.
#[derive(Default)]
struct HeldOutputs {
    read_ends: Vec<OwnedFd>,
    write_ends: Vec<OwnedFd>,
}

impl HeldOutputs {
    /// Waits until the client has closed all of them.
    async fn without_client(&mut self) {
        close_all(std::mem::take(&mut self.read_ends));
        while self.write_ends.iter().any(has_reader) {
            tokio::time::sleep(CLIENT_INTERVAL).await;
        }
    }
}

impl Drop for HeldOutputs {
    fn drop(&mut self) {
        close_all(std::mem::take(&mut self.read_ends));
        close_all(std::mem::take(&mut self.write_ends));
    }
}

/// Whether the other end of a pipe is open.
fn has_reader(write_end: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(write_end, PollFlags::OUT)];
    let polled = poll(&mut fds, Some(&Timespec::default()));
    polled.is_err() || !fds[0].revents().contains(PollFlags::ERR)
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
    let sandbox = parts.registry.sandbox(&container.metadata.sandbox)?;
    // A checkpoint saves either all ports of the command or none.
    let _running = sandbox.pause.read().await;
    let guest_exec = sandbox.guest_execs.begin(id);
    let connection = connection(parts, &sandbox).await?;
    let ports = pipes.add(&connection.qemu, id).await?;
    let exec = Exec { container: container.guest_id().to_string(), id: id.to_owned(), process, streams: ports };
    if let Err(error) = connection.guest.exec(exec).await {
        // It may have been started, if the answer was lost.
        let _ = connection.guest.delete(&ProcessId::exec(container.guest_id().as_str(), id)).await;
        remove_ports(&connection.qemu, id).await;
        return Err(from_guest(error));
    }
    let container = Arc::clone(container);
    Ok((GuestWait { id: id.to_owned(), container, guest_exec, outputs }, streams))
}

/// Creates the pipes of a command: this process's ends, those of the ports, and duplicates of those of the output.
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
            held.read_ends.push(read_end.try_clone().map_err(failed("duplicate a pipe"))?);
            held.write_ends.push(write_end.try_clone().map_err(failed("duplicate a pipe"))?);
            *port = Some(write_end);
            *end = Some(shared(read_end));
        }
    }
    Ok((streams, pipes, held))
}

impl GuestWait {
    /// Waits until the command has exited, and its output has reached its pipes, however long its client takes to read it. A
    /// command that was killed, or whose client is gone, is not delayed by output that nobody reads.
    pub(super) async fn exited(mut self, parts: &Weak<Parts>) -> Result<SessionExit, Error> {
        let gone = || Error::unavailable("the engine has ended");
        let connection = connection_of(&*parts.upgrade().ok_or_else(gone)?, &self.container).await?;
        let id = ProcessId::exec(self.container.guest_id().as_str(), self.id.as_str());
        let exit = tokio::select! {
            exit = connection.guest.wait(&id) => exit,
            () = self.guest_exec.killed() => {
                self.forget(&connection).await;
                return Ok(SessionExit { code: SIGKILLED, oom_killed: false });
            }
        };
        let exit = match exit {
            Ok(exit) => SessionExit { code: exit.code.clamp(0, 255), oom_killed: exit.oom_killed },
            Err(error) if error.kind == ErrorKind::NotFound => SessionExit { code: UNKNOWN, oom_killed: false },
            Err(error) => {
                // Over a new connection, if the virtual machine still runs.
                drop(connection);
                if let Some(strong) = parts.upgrade()
                    && let Ok(connection) = connection_of(&strong, &self.container).await
                {
                    drop(strong);
                    self.forget(&connection).await;
                }
                return Err(from_guest(error));
            }
        };
        let connection = self.wait_for_client(parts, connection).await;
        self.forget(&connection).await;
        Ok(exit)
    }

    /// Waits until the output has reached its pipes, or nobody needs it. Returns the connection to the virtual machine, which may have
    /// been replaced.
    async fn wait_for_client(&mut self, parts: &Weak<Parts>, mut connection: Arc<VmConnection>) -> Arc<VmConnection> {
        loop {
            tokio::select! {
                _ = drain(&connection.qemu, &self.id, CLIENT_TIMEOUT) => {}
                () = self.guest_exec.killed() => return connection,
                () = self.outputs.without_client() => return connection,
            }
            if !connection.is_closed() {
                return connection;
            }
            let Some(strong) = parts.upgrade() else { return connection };
            match connection_of(&strong, &self.container).await {
                Ok(other) => connection = other,
                // The virtual machine has ended.
                Err(_) => return connection,
            }
        }
    }

    /// Removes the command and its ports. One that is running is killed first.
    async fn forget(&self, connection: &VmConnection) {
        let id = ProcessId::exec(self.container.guest_id().as_str(), self.id.as_str());
        if let Err(error) = connection.guest.delete(&id).await {
            tracing::debug!(container = self.container.id().as_str(), "{error}");
        }
        if !drain(&connection.qemu, &self.id, Duration::ZERO).await
            && let Err(error) = self.discard(connection).await
        {
            tracing::debug!(container = self.container.id().as_str(), "{error}");
        }
        remove_ports(&connection.qemu, &self.id).await;
    }

    /// Reads output that nobody needs, for at most [`DISCARD_TIMEOUT`] for each stream. A buffer that is being written when its
    /// port is removed is lost to the guest, and so is the whole queue after some of them.
    async fn discard(&self, connection: &VmConnection) -> Result<(), Error> {
        let mut readers = Vec::new();
        for write_end in &self.outputs.write_ends {
            let held = write_end.try_clone().map_err(failed("duplicate a pipe"))?;
            let path = PathBuf::from(format!("/proc/self/fd/{}", held.as_raw_fd()));
            let open = move |path: &Path| {
                let opened = fifos::open(path, OFlags::RDONLY | OFlags::NONBLOCK);
                // The path was of this descriptor until here, also if the caller is gone.
                drop(held);
                opened.map(Some)
            };
            // A virtual machine monitor may keep the pipe locked inside the kernel.
            let until = Instant::now() + DISCARD_TIMEOUT;
            if let Some(pipe) = SharedPipe::open(&self.container.pipe_calls, &path, until, open).await? {
                readers.push(pipe.reader_of_all(0)?);
            }
        }
        drain(&connection.qemu, &self.id, DISCARD_TIMEOUT).await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_client_is_gone_when_it_has_closed_all_outputs() {
        let (mut outputs, mut clients) = (HeldOutputs::default(), Vec::new());
        for _ in 0..2 {
            let (read_end, write_end) = pipe_with(PipeFlags::CLOEXEC).expect("a pipe");
            outputs.read_ends.push(read_end.try_clone().expect("a duplicate"));
            outputs.write_ends.push(write_end);
            clients.push(read_end);
        }
        while clients.pop().is_some() {
            let is_last = clients.is_empty();
            let gone = tokio::time::timeout(5 * CLIENT_INTERVAL, outputs.without_client()).await;
            assert_eq!(gone.is_ok(), is_last);
        }
    }
}
