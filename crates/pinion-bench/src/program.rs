//! What a program prints, for a limited time and length.

use std::{
    io::{self, BufRead, BufReader, ErrorKind, Read},
    os::unix::process::CommandExt,
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, sync_channel},
    thread,
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open},
};

/// Most bytes of each of standard output and standard error that are read.
const LENGTH_MAX: u64 = 4 << 20;
/// Timeout of `--version`.
const VERSION_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a process that a program has left may hold its output.
const PIPE_TIMEOUT: Duration = Duration::from_secs(1);

/// The result of a program.
pub(crate) struct Output {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
}

/// Runs a program in a process group of its own: an interrupt at the terminal does not end it.
///
/// # Errors
/// It cannot be started, or does not end in time ([`ErrorKind::TimedOut`]): then it is killed with its process group.
pub(crate) fn output(command: &mut Command, limit: Duration) -> io::Result<Output> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn()?;
    let (stdout, stderr) = (read(child.stdout.take())?, read(child.stderr.take())?);
    if !ends(Pid::from_child(&child), limit)? {
        // Its process group exists until it is waited for.
        let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
        child.wait()?;
        return Err(io::Error::new(ErrorKind::TimedOut, format!("it did not end in {} s", limit.as_secs())));
    }
    let status = child.wait()?;
    let text = |bytes: &Receiver<Vec<u8>>| bytes.recv_timeout(PIPE_TIMEOUT).unwrap_or_default();
    Ok(Output { status, stdout: text(&stdout), stderr: text(&stderr) })
}

/// Waits until a child of this process has ended, and does not reap it. Returns whether it has.
///
/// # Errors
/// It was reaped.
pub(crate) fn ends(child: Pid, limit: Duration) -> io::Result<bool> {
    let pidfd = pidfd_open(child, PidfdFlags::empty())?;
    let timeout = Timespec { tv_sec: limit.as_secs().cast_signed(), tv_nsec: limit.subsec_nanos().into() };
    Ok(poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&timeout))? > 0)
}

/// Waits for the end of a process for a limited time. Returns its status; `None` if it is still running.
///
/// # Errors
/// The kernel refuses to wait for it.
pub(crate) fn wait(child: &mut Child, limit: Duration) -> io::Result<Option<ExitStatus>> {
    // One that was reaped has no process id any longer.
    if let Some(status) = child.try_wait()? {
        return Ok(Some(status));
    }
    if ends(Pid::from_child(child), limit)? { child.wait().map(Some) } else { Ok(None) }
}

/// Reads a pipe on a thread: a program must not wait for the reader of its other pipe.
fn read(pipe: Option<impl Read + Send + 'static>) -> io::Result<Receiver<Vec<u8>>> {
    let (sender, bytes) = sync_channel(1);
    thread::Builder::new().spawn(move || {
        let mut text = Vec::new();
        // What was read before an error counts.
        let _ = pipe.map(|pipe| pipe.take(LENGTH_MAX).read_to_end(&mut text));
        // The receiver may have stopped waiting.
        let _ = sender.send(text);
    })?;
    Ok(bytes)
}

/// The lines that a process prints, which are awaited for a limited time.
pub(crate) struct Lines(Receiver<io::Result<String>>);

impl Lines {
    /// Reads the lines on a thread, each at most `LENGTH_MAX` long, until the pipe is closed.
    ///
    /// # Errors
    /// No thread can be started.
    pub(crate) fn of(pipe: impl Read + Send + 'static) -> io::Result<Self> {
        let (sender, lines) = sync_channel(1);
        thread::Builder::new().spawn(move || {
            let mut reader = BufReader::new(pipe);
            loop {
                let mut line = String::new();
                let read = match (&mut reader).take(LENGTH_MAX).read_line(&mut line) {
                    Ok(0) => return,
                    read => read,
                };
                let has_failed = read.is_err();
                // The receiver may have stopped waiting.
                if sender.send(read.map(|_| line)).is_err() || has_failed {
                    return;
                }
            }
        })?;
        Ok(Self(lines))
    }

    /// Waits for the next line.
    ///
    /// # Errors
    /// The pipe was closed ([`ErrorKind::UnexpectedEof`]), or nothing was printed in time ([`ErrorKind::TimedOut`]).
    pub(crate) fn next(&self, limit: Duration) -> io::Result<String> {
        self.0.recv_timeout(limit).unwrap_or_else(|error| match error {
            RecvTimeoutError::Disconnected => Err(ErrorKind::UnexpectedEof.into()),
            RecvTimeoutError::Timeout => {
                Err(io::Error::new(ErrorKind::TimedOut, format!("no response in {} s", limit.as_secs())))
            }
        })
    }
}

/// Returns the first line that a command prints for `--version`; `?` if it does not in time.
pub(crate) fn version(words: &[String]) -> String {
    let Some((program, arguments)) = words.split_first() else { return "?".to_owned() };
    let printed = output(Command::new(program).args(arguments).arg("--version"), VERSION_TIMEOUT);
    let text = printed.map(|printed| String::from_utf8_lossy(&printed.stdout).into_owned()).unwrap_or_default();
    text.lines().next().unwrap_or("?").to_owned()
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn run(script: &str, seconds: u64) -> io::Result<Output> {
        output(Command::new("sh").args(["-c", script]), Duration::from_secs(seconds))
    }

    #[test]
    fn a_program_has_a_limited_time_and_length() {
        let printed = run("echo out; echo err >&2; exit 3", 20).expect("run");
        assert_eq!(
            (printed.status.code(), &printed.stdout[..], &printed.stderr[..]),
            (Some(3), &b"out\n"[..], &b"err\n"[..])
        );
        let begin = Instant::now();
        assert_eq!(run("sleep 100 & sleep 100", 1).err().map(|error| error.kind()), Some(ErrorKind::TimedOut));
        assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
        let printed = run("yes", 20).expect("run");
        assert!(!printed.status.success() && printed.stdout.len() as u64 == LENGTH_MAX, "{}", printed.status);
    }

    #[test]
    fn the_end_of_a_process_is_awaited_for_a_limited_time() {
        let mut child = Command::new("sleep").arg("1").spawn().expect("started");
        assert_eq!(wait(&mut child, Duration::from_millis(1)).expect("awaited"), None);
        for _ in 0..2 {
            let status = wait(&mut child, Duration::from_secs(20)).expect("awaited");
            assert!(status.is_some_and(|status| status.success()), "{status:?}");
        }
    }

    #[test]
    fn lines_are_awaited_for_a_limited_time() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo one; echo two; sleep 2"]).stdout(Stdio::piped());
        let mut child = command.spawn().expect("started");
        let lines = Lines::of(child.stdout.take().expect("a pipe")).expect("a thread");
        let next = |seconds| lines.next(Duration::from_secs(seconds)).map_err(|error| error.kind());
        assert_eq!((next(20), next(20)), (Ok("one\n".to_owned()), Ok("two\n".to_owned())));
        assert_eq!((next(0), next(20)), (Err(ErrorKind::TimedOut), Err(ErrorKind::UnexpectedEof)));
        child.wait().expect("ended");
    }

    #[test]
    fn a_process_that_keeps_the_output_delays_nothing() {
        let begin = Instant::now();
        assert!(run("sleep 5 & exit 0", 20).expect("run").status.success());
        assert!(begin.elapsed() < Duration::from_secs(4), "{:?}", begin.elapsed());
    }
}
