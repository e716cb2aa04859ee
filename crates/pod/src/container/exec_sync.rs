//! `ExecSync`: a command run to its end, its output kept to a bound, its time limited.
//!
//! What the command left running when it ended by itself lives on in the container, as under other engines; it does not
//! hold the answer. At the deadline everything that the command started is killed and gone before the answer, also what
//! made itself a daemon: it cannot leave the command's cgroup.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use tokio::time::timeout;

use super::{Container, ExecOutput, ExecRequest, UserChoice, exec};
use crate::{
    Error, ErrorKind,
    engine::Inner,
    error::failed,
    session::{Ended, PipeReader, SharedPipe},
};

/// How long output is waited for after the command ended: a process it left behind may hold the pipe forever.
const DRAIN: Duration = Duration::from_millis(100);
/// How long what is in a pipe then may take to be read: on a busy machine a while, and forever where a process of the
/// container holds the pipe inside the kernel.
const HELD: Duration = Duration::from_secs(1);
/// A pipe holds no more, so what is left when a command ended is no more (`/proc/sys/fs/pipe-max-size` for everyone).
const LEFT: usize = 1 << 20;

pub(crate) async fn exec_sync(
    engine: &Arc<Inner>,
    id: &str,
    command: Vec<String>,
    limit: Duration,
) -> Result<ExecOutput, Error> {
    let container = engine.container(id)?;
    let begin = Instant::now();
    let late = |more: &str| {
        let message = format!("exec in container {}: not done within {limit:?}; {more}", container.id());
        Error::new(ErrorKind::DeadlineExceeded, message)
    };
    let until_end = if limit.is_zero() { Duration::MAX } else { limit };
    let Some(mut running) = exec::run_within(engine, &container, request(command), until_end).await? else {
        return Err(late("it could not even begin: the container, or the machine, stands still"));
    };
    let most = engine.config.exec_sync_output_max;
    let outputs = Outputs::new(running.stdout.take(), running.stderr.take(), most)?;
    let remaining = || until_end.saturating_sub(begin.elapsed());
    match timeout(remaining(), running.command.ended()).await {
        Ok(ended) => {
            let ended = running.command.explained(ended?);
            outputs.finish(remaining()).await;
            answer(&container, ended, outputs)
        }
        Err(_) => match timeout(exec::KILLED, running.command.kill()).await {
            Ok(Ok(())) => Err(late("it was killed with all it started")),
            Ok(Err(error)) => Err(late(&format!("killing it: {error}"))),
            Err(_) => Err(late("it was killed and does not end: its container is frozen, or it hangs in the kernel")),
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

/// The answer; a command that was killed for want of memory says so.
fn answer(container: &Container, ended: Ended, outputs: Outputs) -> Result<ExecOutput, Error> {
    let Outputs { stdout, stderr } = outputs;
    let bytes = |reader: Option<PipeReader>| {
        let bytes = reader.map_or_else(|| Ok(Vec::new()), PipeReader::into_bytes);
        bytes.map_err(failed(format_args!("exec in container {}: read its output", container.id())))
    };
    let (stdout, mut stderr) = (bytes(stdout)?, bytes(stderr)?);
    if ended.oom_killed {
        stderr.extend_from_slice(b"\npinion: the command was killed: the container was out of memory\n");
    }
    Ok(ExecOutput { stdout, stderr, exit_code: ended.code })
}

/// What the command writes. Other threads read it.
struct Outputs {
    stdout: Option<PipeReader>,
    stderr: Option<PipeReader>,
}

impl Outputs {
    /// Keeps `most` bytes of each.
    fn new(stdout: Option<SharedPipe>, stderr: Option<SharedPipe>, most: usize) -> Result<Self, Error> {
        let read = |pipe: Option<SharedPipe>| pipe.map(|pipe| pipe.reader_of_all(most)).transpose();
        Ok(Self { stdout: read(stdout)?, stderr: read(stderr)? })
    }

    fn readers(&self) -> impl Iterator<Item = &PipeReader> {
        self.stdout.iter().chain(&self.stderr)
    }

    /// Waits for the rest of what an ended command wrote, for `remaining` or twice [`DRAIN`] at most: to the end of the
    /// streams, or until what is in the pipes is read. What a process of the container holds inside the kernel is left
    /// there.
    async fn finish(&self, remaining: Duration) {
        let begin = Instant::now();
        let ended = join_all(self.readers().map(PipeReader::ended));
        // One that ended right before its deadline is answered with all of its output, too.
        let remaining = remaining.max(2 * DRAIN);
        if timeout(DRAIN, ended).await.is_ok() {
            return;
        }
        // All that the command wrote itself is in the pipes.
        let drained = join_all(self.readers().map(|reader| reader.drained(LEFT)));
        if timeout(HELD.min(remaining.saturating_sub(begin.elapsed())), drained).await.is_err() {
            tracing::debug!("output of a command could not be read: its pipe is held inside the kernel");
        }
    }
}
