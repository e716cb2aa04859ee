//! Runs a program to learn what it is. The program may hang, write without end or leave processes behind.

use std::{os::unix::process::ExitStatusExt, path::Path, process::Stdio, time::Duration};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    process::{Child, Command},
    time::timeout,
};

use super::shim_path::PATH;

/// Time limit of one program.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of bytes of its output.
const OUTPUT_MAX: u64 = 256 << 10;

/// Why a program gave no output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum QueryError {
    /// It cannot be executed.
    NotExecuted(String),
    /// It did not exit in time.
    TimedOut,
    /// It failed, or wrote too much.
    Failed,
    /// It was killed by a signal.
    Killed,
}

/// Runs a program with these arguments and this standard input, and returns its standard output.
pub(super) async fn output(
    program: &Path,
    arguments: &[&str],
    environment: &[String],
    input: &[u8],
) -> Result<Vec<u8>, QueryError> {
    let mut command = Command::new(program);
    let variables = environment.iter().filter_map(|variable| variable.split_once('='));
    command.args(arguments).env_clear().envs([("PATH", PATH)]).envs(variables).process_group(0).kill_on_drop(true);
    command.stdin(if input.is_empty() { Stdio::null() } else { Stdio::piped() });
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    // `spawn` returns after execve, that is, after the program was read from its disk.
    let spawned = offload::blocking(move || command.spawn()).await;
    let spawned = spawned.unwrap_or_else(|bug| Err(std::io::Error::other(bug)));
    let mut child = spawned.map_err(|error| QueryError::NotExecuted(error.to_string()))?;
    let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    let outcome = timeout(TIMEOUT, communicate(&mut child, input)).await.unwrap_or(Err(QueryError::TimedOut));
    if outcome.is_err() {
        // ESRCH: the group has just ended.
        let _ = group.map(|group| kill_process_group(group, Signal::KILL));
    }
    outcome
}

/// Writes the input, reads the output to its end, and waits for the exit.
async fn communicate(child: &mut Child, input: &[u8]) -> Result<Vec<u8>, QueryError> {
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
    let write = async {
        if let Some(mut pipe) = stdin {
            // The program need not read it.
            let _ = pipe.write_all(input).await;
        }
    };
    let read = async {
        match stdout {
            Some(pipe) => bounded(pipe).await,
            None => Ok(Vec::new()),
        }
    };
    let ((), output) = tokio::join!(write, read);
    let output = output?;
    match child.wait().await {
        Ok(status) if status.success() => Ok(output),
        Ok(status) if status.signal().is_some() => Err(QueryError::Killed),
        _ => Err(QueryError::Failed),
    }
}

/// Reads a pipe to its end; fails if that is too far.
async fn bounded(pipe: impl AsyncRead + Unpin) -> Result<Vec<u8>, QueryError> {
    let mut bytes = Vec::new();
    let read = pipe.take(OUTPUT_MAX + 1).read_to_end(&mut bytes).await;
    match read {
        Ok(length) if length as u64 <= OUTPUT_MAX => Ok(bytes),
        _ => Err(QueryError::Failed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn of_shell(script: &str) -> Result<Vec<u8>, QueryError> {
        output(Path::new("/bin/sh"), &["-c", script], &["GREETING=hello".to_owned()], b"input").await
    }

    #[tokio::test]
    async fn output_is_bounded_and_failures_are_distinguished() {
        assert_eq!(of_shell("echo $GREETING").await, Ok(b"hello\n".to_vec()));
        assert_eq!(of_shell("cat").await, Ok(b"input".to_vec()));
        assert_eq!(of_shell("echo text; exit 3").await, Err(QueryError::Failed));
        assert_eq!(of_shell("yes").await, Err(QueryError::Failed));
        assert_eq!(of_shell("echo text; kill -9 $$").await, Err(QueryError::Killed));
        let missing = output(Path::new("/no/such/program"), &[], &[], &[]).await;
        assert!(matches!(missing, Err(QueryError::NotExecuted(cause)) if cause.contains("No such file")));
        let directory = output(Path::new("/etc"), &[], &[], &[]).await;
        assert!(matches!(directory, Err(QueryError::NotExecuted(cause)) if cause.contains("Permission denied")));
    }
}
