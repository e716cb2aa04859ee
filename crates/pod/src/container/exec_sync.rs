//! `ExecSync`: a command run to its end, its output kept to a bound, its time limited.

use std::{sync::Arc, time::Duration};

use rustix::fd::OwnedFd;
use tokio::{io::AsyncReadExt, net::unix::pipe::Receiver, time::timeout};

use super::{ExecOutput, ExecRequest, UserChoice, exec};
use crate::{Error, ErrorKind, engine::Inner, error::failed, session::SessionControl};

/// Most output that is kept, of each stream; what is more is read and dropped.
const MOST: usize = 16 << 20;
/// How long output is waited for after the command ended: a process it left behind may hold the pipe for ever.
const DRAIN: Duration = Duration::from_millis(100);
/// How long what was killed may take to end.
const KILLED: Duration = Duration::from_secs(10);

pub(crate) async fn exec_sync(
    engine: &Arc<Inner>,
    id: &str,
    command: Vec<String>,
    limit: Duration,
) -> Result<ExecOutput, Error> {
    let container = engine.container(id)?;
    let request = ExecRequest {
        env: Vec::new(),
        working_dir: None,
        user: UserChoice::Image,
        command,
        tty: false,
        stdin: false,
        stdout: true,
        stderr: true,
        size: None,
    };
    let mut running = exec::run(engine, &container, request).await?;
    let outputs = (Gathered::of(running.stdout.take())?, Gathered::of(running.stderr.take())?);
    let control = SessionControl::command(running.command, None);
    let limit = if limit.is_zero() { Duration::MAX } else { limit };
    match timeout(limit, finish(&control, outputs)).await {
        Ok(output) => output,
        Err(_) => {
            kill(&control).await?;
            Err(Error::new(
                ErrorKind::DeadlineExceeded,
                format!("exec in container {}: not done within {limit:?}; it was killed", container.id()),
            ))
        }
    }
}

/// Reads until the command ended, then what is left.
async fn finish(control: &SessionControl, outputs: (Gathered, Gathered)) -> Result<ExecOutput, Error> {
    let (mut out, mut err) = outputs;
    let code = {
        let reading = async {
            tokio::join!(out.read(), err.read());
        };
        tokio::pin!(reading);
        tokio::select! {
            code = control.wait() => {
                // All that it wrote itself is in the pipes already.
                let _ = timeout(DRAIN, reading).await;
                code?
            }
            () = &mut reading => control.wait().await?,
        }
    };
    Ok(ExecOutput { stdout: out.bytes, stderr: err.bytes, exit_code: code })
}

/// Everything that it started, and waits until it is reaped.
async fn kill(control: &SessionControl) -> Result<(), Error> {
    control.kill().await?;
    match timeout(KILLED, control.wait()).await {
        Ok(ended) => ended.map(drop),
        Err(_) => Err(Error::internal("exec: it was killed at its deadline and does not end")),
    }
}

/// One stream, to a bound.
struct Gathered {
    pipe: Option<Receiver>,
    bytes: Vec<u8>,
}

impl Gathered {
    fn of(pipe: Option<OwnedFd>) -> Result<Self, Error> {
        let pipe = pipe.map(Receiver::from_owned_fd).transpose().map_err(failed("read a pipe"))?;
        Ok(Self { pipe, bytes: Vec::new() })
    }

    /// To the end of the stream.
    async fn read(&mut self) {
        let Some(pipe) = &mut self.pipe else { return };
        let mut buffer = vec![0; 64 << 10];
        while let Ok(n @ 1..) = pipe.read(&mut buffer).await {
            let room = MOST - self.bytes.len();
            self.bytes.extend_from_slice(&buffer[..n.min(room)]);
        }
    }
}
