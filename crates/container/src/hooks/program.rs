//! The program of one hook: its input, its environment, and its timeout.

use std::{
    ffi::CString,
    fs::File,
    io::{Read, Seek, Write},
    os::unix::ffi::OsStringExt,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{MemfdFlags, memfd_create},
    io::Errno,
    process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process_group, pidfd_open, waitid},
};

use super::{Hook, Output};
use crate::{Error, error::During};

/// Maximum number of bytes of a failed hook's output that its error shows.
const OUTPUT_MAX: u64 = 4096;

/// Context of a hook's program in addition to its entry in the spec.
#[derive(Clone, Copy)]
pub(super) struct HookContext<'a> {
    pub(super) output: &'a Output,
    /// The environment of a hook without one of its own; `None`: the environment of this process.
    pub(super) environment: Option<&'a [CString]>,
    /// A socket; the hook is killed when its other end is closed.
    pub(super) caller: Option<BorrowedFd<'a>>,
}

/// Returns the environment that this process was started with.
fn inherited_environment() -> Vec<CString> {
    let variables = std::env::vars_os().map(|(name, value)| [name.into_vec(), value.into_vec()].join(&b'='));
    // No variable has a NUL byte: the kernel passed them as C strings.
    variables.filter_map(|variable| CString::new(variable).ok()).collect()
}

impl Hook {
    pub(super) fn run(&self, state: &oci::State, status: oci::Status, context: &HookContext<'_>) -> Result<(), Error> {
        self.try_run(&oci::State { status, ..state.clone() }, context)
            .map_err(|error| error.within(format!("run {} ({:?})", self.field, self.path)))
    }

    fn try_run(&self, state: &oci::State, context: &HookContext<'_>) -> Result<(), Error> {
        let input = self.input(state)?;
        let output = memory_file(c"hook-output")?;
        let pid = self.spawn(&input, &output, context)?;
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).during(|| "open its pidfd")?;
        let waited = self.wait(&pidfd, context.caller);
        if !matches!(waited, Ok(WaitResult::Exited)) {
            // The hook leads its own process group, so its children are killed too.
            let _ = kill_process_group(pid, Signal::KILL);
        }
        let status = waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED).during(|| "wait for its end")?;
        match waited? {
            WaitResult::Exited => {}
            WaitResult::TimedOut => {
                let seconds = self.timeout.unwrap_or_default().as_secs();
                return Err(failure(format!("timed out after {seconds} s; it was killed")));
            }
            WaitResult::CallerGone => return Err(failure("its caller ended; it was killed".to_owned())),
        }
        let how = match status.and_then(|status| status.exit_status().map(Ok).or(status.terminating_signal().map(Err)))
        {
            Some(Ok(0)) => return Ok(()),
            Some(Ok(code)) => format!("exit code {code}"),
            Some(Err(signal)) => format!("ended by signal {signal}"),
            None => "ended with an unknown status".to_owned(),
        };
        Err(failure(format!("{how}{}", output_excerpt(output))))
    }

    fn spawn(&self, input: &File, output: &OwnedFd, context: &HookContext<'_>) -> Result<Pid, Error> {
        let stdout = context.output.stdout.as_ref().unwrap_or(output);
        let stderr = context.output.stderr.as_ref().unwrap_or(output);
        let files = [input.as_fd(), stdout.as_fd(), stderr.as_fd()];
        let inherited;
        let environment = match (&self.environment, context.environment) {
            (Some(given), _) => given.as_slice(),
            (None, Some(default)) => default,
            (None, None) => {
                inherited = inherited_environment();
                inherited.as_slice()
            }
        };
        let pid = syscall::spawn::spawn(&self.path, &self.arguments, environment, &files);
        pid.map_err(|error| Error::system("start it", error))
    }

    /// Returns the state as JSON for the hook's standard input. It is a file in memory and not a pipe, so that a hook
    /// that does not read it blocks no writer.
    fn input(&self, state: &oci::State) -> Result<File, Error> {
        let text =
            serde_json::to_vec(state).map_err(|error| Error::system("write the state", std::io::Error::from(error)))?;
        let mut file = File::from(memory_file(c"hook-state")?);
        file.write_all(&text).and_then(|()| file.rewind()).map_err(|error| Error::system("write the state", error))?;
        Ok(file)
    }

    /// Waits until the hook exits, its timeout expires, or its caller closes the socket.
    fn wait(&self, pidfd: &OwnedFd, caller: Option<BorrowedFd<'_>>) -> Result<WaitResult, Error> {
        let timeout = self.timeout.map(|timeout| Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: 0 });
        let mut fds = vec![PollFd::new(pidfd, PollFlags::IN)];
        // poll(2) reports POLLHUP without a request.
        fds.extend(caller.map(|caller| PollFd::from_borrowed_fd(caller, PollFlags::empty())));
        loop {
            match poll(&mut fds, timeout.as_ref()) {
                Ok(0) => return Ok(WaitResult::TimedOut),
                Ok(_) if !fds[0].revents().is_empty() => return Ok(WaitResult::Exited),
                Ok(_) => return Ok(WaitResult::CallerGone),
                // A process that runs hooks handles no signals, but SIGSTOP and SIGCONT may interrupt the call.
                Err(Errno::INTR) => {}
                Err(errno) => return Err(Error::system("wait for its end", errno)),
            }
        }
    }
}

/// Result of waiting for a hook.
enum WaitResult {
    Exited,
    TimedOut,
    CallerGone,
}

fn failure(message: String) -> Error {
    Error::new(crate::ErrorKind::System, message)
}

fn memory_file(name: &std::ffi::CStr) -> Result<OwnedFd, Error> {
    memfd_create(name, MemfdFlags::CLOEXEC).during(|| "make a file in memory")
}

/// Returns the beginning of the hook's output.
fn output_excerpt(output: OwnedFd) -> String {
    let mut file = File::from(output);
    let mut text = Vec::new();
    let read = file.rewind().and_then(|()| file.take(OUTPUT_MAX).read_to_end(&mut text));
    match (read, String::from_utf8_lossy(&text).trim()) {
        (Err(_), _) | (_, "") => String::new(),
        (_, text) => format!(": {text}"),
    }
}
