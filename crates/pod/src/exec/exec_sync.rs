//! `ExecSync`: runs a command until it exits, with a time limit, and collects its output up to a size limit.
//!
//! Processes that the command leaves running when it exits by itself stay in the container, as under other engines, and
//! do not delay the answer. At the deadline every process that the command started is killed and gone before the
//! answer, even one that daemonized: it cannot leave the command's cgroup.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use tokio::time::timeout;

use super::{
    command::{Command, KILL_TIMEOUT},
    request::{ExecOutput, ExecRequest, SessionExit},
    streams::Streams,
};
use crate::{
    Error, ErrorKind, UserChoice,
    error::failed,
    parts::Parts,
    stdio::{PipeReader, SharedPipe},
    store::Container,
};

/// How long to wait for the end of output after the command exited: a process that it left behind may keep the pipe
/// open forever.
const DRAIN: Duration = Duration::from_millis(100);
/// How long reading the rest of a pipe may take after that: a while on a busy machine, and forever if a process of the
/// container holds the pipe's lock inside the kernel.
const READ_TIMEOUT: Duration = Duration::from_secs(1);
/// Most bytes that a pipe can hold when the command exited (`/proc/sys/fs/pipe-max-size` for unprivileged users).
const PIPE_MAX: usize = 1 << 20;

pub(crate) async fn exec_sync(
    parts: &Arc<Parts>,
    id: &str,
    command: Vec<String>,
    limit: Duration,
) -> Result<ExecOutput, Error> {
    let container = parts.registry.container(id)?;
    let begin = Instant::now();
    let timed_out = |detail: &str| {
        let message = format!("exec in container {}: timed out after {limit:?}; {detail}", container.id());
        Error::new(ErrorKind::DeadlineExceeded, message)
    };
    let total = if limit.is_zero() { Duration::MAX } else { limit };
    let started = Command::start_within(total, parts, &container, request(command)).await?;
    let Some((command, Streams { stdout, stderr, .. })) = started else {
        return Err(timed_out("its program did not start: the container may be frozen, or the machine overloaded"));
    };
    let output_max = parts.node.config.exec_sync_output_max;
    let outputs = Outputs::new(stdout, stderr, output_max)?;
    let remaining = || total.saturating_sub(begin.elapsed());
    match timeout(remaining(), command.exited()).await {
        Ok(ended) => {
            let ended = command.with_oom_kill(ended?);
            outputs.finish(remaining()).await;
            answer(&container, ended, outputs)
        }
        Err(_) => match timeout(KILL_TIMEOUT, command.kill()).await {
            Ok(Ok(())) => Err(timed_out("it was killed with all it started")),
            Ok(Err(error)) => Err(timed_out(&format!("killing it failed: {error}"))),
            Err(_) => Err(timed_out(
                "it was killed, but is still running: its container is frozen, or it hangs in the kernel",
            )),
        },
    }
}

fn request(command: Vec<String>) -> ExecRequest {
    ExecRequest {
        env: Vec::new(),
        working_dir: None,
        user: UserChoice::Image,
        command,
        tty: false,
        stdin: false,
        stdout: true,
        stderr: true,
        size: None,
    }
}

/// Builds the answer. If the command was killed because the container ran out of memory, its error output says so.
fn answer(container: &Container, ended: SessionExit, outputs: Outputs) -> Result<ExecOutput, Error> {
    let Outputs { stdout, stderr } = outputs;
    let bytes = |reader: Option<PipeReader>| {
        let bytes = reader.map_or_else(|| Ok(Vec::new()), PipeReader::into_bytes);
        bytes.map_err(failed(format_args!("exec in container {}: read its output", container.id())))
    };
    let (stdout, mut stderr) = (bytes(stdout)?, bytes(stderr)?);
    if ended.oom_killed {
        stderr.extend_from_slice(b"\npinion: the command was killed: the container ran out of memory\n");
    }
    Ok(ExecOutput { stdout, stderr, exit_code: ended.code })
}

/// Readers of the command's output. Other threads do the reading.
struct Outputs {
    stdout: Option<PipeReader>,
    stderr: Option<PipeReader>,
}

impl Outputs {
    /// Starts reading; keeps at most `output_max` bytes of each stream.
    fn new(stdout: Option<SharedPipe>, stderr: Option<SharedPipe>, output_max: usize) -> Result<Self, Error> {
        let read = |pipe: Option<SharedPipe>| pipe.map(|pipe| pipe.reader_of_all(output_max)).transpose();
        Ok(Self { stdout: read(stdout)?, stderr: read(stderr)? })
    }

    fn readers(&self) -> impl Iterator<Item = &PipeReader> {
        self.stdout.iter().chain(&self.stderr)
    }

    /// Waits for the rest of the output of a command that exited, for at most `remaining` or twice [`DRAIN`], whichever
    /// is longer: to the end of the streams, or until the pipes are empty. Data in a pipe that a process of the
    /// container holds inside the kernel is dropped.
    async fn finish(&self, remaining: Duration) {
        let begin = Instant::now();
        let closed = join_all(self.readers().map(PipeReader::ended));
        // A command that exits right before its deadline gets all of its output returned, too.
        let remaining = remaining.max(2 * DRAIN);
        if timeout(DRAIN, closed).await.is_ok() {
            return;
        }
        // Everything that the command itself wrote is in the pipes by now.
        let drained = join_all(self.readers().map(|reader| reader.drained(PIPE_MAX)));
        if timeout(READ_TIMEOUT.min(remaining.saturating_sub(begin.elapsed())), drained).await.is_err() {
            tracing::debug!(
                "output of a command was dropped: a process of the container holds its pipe inside the kernel"
            );
        }
    }
}
