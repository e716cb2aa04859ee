//! `ExecSync`: a command run to its end, its output kept to a bound, its time limited.
//!
//! What the command left running when it ended by itself lives on in the container, as under other engines; it does not
//! hold the answer. At the deadline everything that the command started is killed and gone before the answer, also what
//! made itself a daemon: it cannot leave the command's cgroup.

use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use rustix::fd::OwnedFd;
use tokio::{net::unix::pipe::Receiver, time::timeout};

use super::{Container, ExecOutput, ExecRequest, UserChoice, exec};
use crate::{
    Error, ErrorKind, clock,
    engine::Inner,
    error::failed,
    session::{Command, Ended},
};

/// How long output is waited for after the command ended: a process it left behind may hold the pipe for ever.
const DRAIN: Duration = Duration::from_millis(100);
/// As much is read at once.
const PIECE: usize = 16 << 10;
/// A pipe holds no more, so what is left when a command ended is no more (`/proc/sys/fs/pipe-max-size` for everyone).
const LEFT: usize = 1 << 20;
const SIGKILLED: i32 = 128 + 9;

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
    let outputs = (Gathered::of(running.stdout.take(), most)?, Gathered::of(running.stderr.take(), most)?);
    match timeout(until_end.saturating_sub(begin.elapsed()), finish(&running.command, outputs)).await {
        Ok(output) => told(engine, &container, output?),
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

/// Reads until the command ended, then what is left.
async fn finish(command: &Command, outputs: (Gathered, Gathered)) -> Result<(Ended, Gathered, Gathered), Error> {
    let (mut out, mut err) = outputs;
    let ended = {
        let reading = async {
            tokio::join!(out.read(), err.read());
        };
        tokio::pin!(reading);
        tokio::select! {
            ended = command.ended() => {
                let _ = timeout(DRAIN, reading).await;
                ended?
            }
            () = &mut reading => command.ended().await?,
        }
    };
    // All that it wrote itself is in the pipes: on a busy machine more than was read meanwhile.
    out.read_what_is_there();
    err.read_what_is_there();
    Ok((ended, out, err))
}

/// The answer; a command that was killed for want of memory says so.
fn told(
    engine: &Inner,
    container: &Container,
    (ended, mut out, mut err): (Ended, Gathered, Gathered),
) -> Result<ExecOutput, Error> {
    if let Some(cause) = out.failed.take().or_else(|| err.failed.take()) {
        return Err(failed(format_args!("exec in container {}: read its output", container.id()))(cause));
    }
    if ended.code == SIGKILLED && (ended.oom_killed || container.has_new_oom_kill(engine)) {
        let now = clock::now();
        container.part("a command (exec) was killed: out of memory".into(), now, now, "");
        err.bytes.extend_from_slice(b"\npinion: the command was killed: the container was out of memory\n");
    }
    Ok(ExecOutput { stdout: out.bytes, stderr: err.bytes, exit_code: ended.code })
}

/// One stream, to a bound.
struct Gathered {
    pipe: Option<Receiver>,
    bytes: Vec<u8>,
    most: usize,
    /// Not all of it could be read.
    failed: Option<io::Error>,
}

impl Gathered {
    fn of(pipe: Option<OwnedFd>, most: usize) -> Result<Self, Error> {
        let pipe = pipe.map(Receiver::from_owned_fd).transpose().map_err(failed("read a pipe"))?;
        Ok(Self { pipe, bytes: Vec::new(), most, failed: None })
    }

    /// To the end of the stream.
    async fn read(&mut self) {
        while let Some(pipe) = &self.pipe {
            if let Err(cause) = pipe.readable().await {
                return self.fail(cause);
            }
            self.piece();
        }
    }

    /// Until the pipe is empty, without waiting; who goes on writing is not followed for ever.
    fn read_what_is_there(&mut self) {
        let mut left = LEFT;
        while let Some(length) = self.piece() {
            left = left.saturating_sub(length);
            if left == 0 {
                return;
            }
        }
    }

    /// As much as is there at once; none: nothing, or the stream is at its end.
    fn piece(&mut self) -> Option<usize> {
        let pipe = self.pipe.as_ref()?;
        let length = if self.bytes.len() < self.most {
            self.bytes.reserve(PIECE);
            pipe.try_read_buf(&mut self.bytes)
        } else {
            // Read all the same: a command that cannot write would never end.
            pipe.try_read(&mut [0; PIECE])
        };
        self.bytes.truncate(self.most);
        match length {
            Ok(0) => self.pipe = None,
            Ok(length) => return Some(length),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(cause) => self.fail(cause),
        }
        None
    }

    fn fail(&mut self, cause: io::Error) {
        self.pipe = None;
        self.failed = Some(cause);
    }
}
