//! One hook as a program: what it gets, and how long it may take.

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

/// Most of a failed hook's output that its error shows.
const OUTPUT_MAX: u64 = 4096;

/// What a hook's program gets that its entry does not say.
#[derive(Clone, Copy)]
pub(super) struct Surroundings<'a> {
    pub(super) output: &'a Output,
    /// Of a hook without one; `None`: the environment of this process.
    pub(super) environment: Option<&'a [CString]>,
    /// When nobody holds its other end anymore, the hook is killed.
    pub(super) caller: Option<BorrowedFd<'a>>,
}

/// The environment of this process, as it was given to it.
fn own_environment() -> Vec<CString> {
    let variables = std::env::vars_os().map(|(name, value)| [name.into_vec(), value.into_vec()].join(&b'='));
    // None has a NUL byte: they came as C strings.
    variables.filter_map(|variable| CString::new(variable).ok()).collect()
}

impl Hook {
    pub(super) fn run(&self, state: &oci::State, status: oci::Status, around: &Surroundings<'_>) -> Result<(), Error> {
        self.try_run(&oci::State { status, ..state.clone() }, around)
            .map_err(|error| error.within(format!("run {} ({:?})", self.field, self.path)))
    }

    fn try_run(&self, state: &oci::State, around: &Surroundings<'_>) -> Result<(), Error> {
        let input = self.input(state)?;
        let output = memory_file(c"hook-output")?;
        let pid = self.spawn(&input, &output, around)?;
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).during(|| "open its pidfd")?;
        let waited = self.wait(&pidfd, around.caller);
        if !matches!(waited, Ok(Waited::Ended)) {
            // It leads a group of its own: what it started goes with it.
            let _ = kill_process_group(pid, Signal::KILL);
        }
        let ended = waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED).during(|| "wait for its end")?;
        match waited? {
            Waited::Ended => {}
            Waited::Late => {
                let seconds = self.timeout.unwrap_or_default().as_secs();
                return Err(Error::system(format!("it took more than {seconds} s and was killed"), Errno::TIMEDOUT));
            }
            Waited::Alone => return Err(Error::system("nobody waits for it anymore; it was killed", Errno::CANCELED)),
        }
        let how = match ended.and_then(|status| status.exit_status().map(Ok).or(status.terminating_signal().map(Err))) {
            Some(Ok(0)) => return Ok(()),
            Some(Ok(code)) => format!("exit code {code}"),
            Some(Err(signal)) => format!("ended by signal {signal}"),
            None => "ended in an unknown way".to_owned(),
        };
        Err(Error { kind: crate::ErrorKind::System, message: format!("{how}{}", said(output)) })
    }

    fn spawn(&self, input: &File, output: &OwnedFd, around: &Surroundings<'_>) -> Result<Pid, Error> {
        let stdout = around.output.stdout.as_ref().unwrap_or(output);
        let stderr = around.output.stderr.as_ref().unwrap_or(output);
        let files = [input.as_fd(), stdout.as_fd(), stderr.as_fd()];
        let own;
        let environment = match (&self.environment, around.environment) {
            (Some(given), _) => given.as_slice(),
            (None, Some(default)) => default,
            (None, None) => {
                own = own_environment();
                own.as_slice()
            }
        };
        let pid = syscall::spawn::spawn(&self.path, &self.arguments, environment, &files);
        pid.map_err(|error| Error::system("start it", error))
    }

    /// The state as JSON, to be read from standard input: a file in memory, so that a hook that reads nothing holds
    /// nobody up.
    fn input(&self, state: &oci::State) -> Result<File, Error> {
        let text =
            serde_json::to_vec(state).map_err(|error| Error::system("write the state", std::io::Error::from(error)))?;
        let mut file = File::from(memory_file(c"hook-state")?);
        file.write_all(&text).and_then(|()| file.rewind()).map_err(|error| Error::system("write the state", error))?;
        Ok(file)
    }

    /// Until it ends, its time is over, or nobody wants it anymore.
    fn wait(&self, pidfd: &OwnedFd, caller: Option<BorrowedFd<'_>>) -> Result<Waited, Error> {
        let timeout = self.timeout.map(|timeout| Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: 0 });
        let mut fds = vec![PollFd::new(pidfd, PollFlags::IN)];
        // HUP comes unasked.
        fds.extend(caller.map(|caller| PollFd::from_borrowed_fd(caller, PollFlags::empty())));
        loop {
            match poll(&mut fds, timeout.as_ref()) {
                Ok(0) => return Ok(Waited::Late),
                Ok(_) if !fds[0].revents().is_empty() => return Ok(Waited::Ended),
                Ok(_) => return Ok(Waited::Alone),
                // No signal is handled by who runs hooks; a stop and continuation may interrupt.
                Err(Errno::INTR) => {}
                Err(errno) => return Err(Error::system("wait for its end", errno)),
            }
        }
    }
}

/// What ended the waiting for a hook.
enum Waited {
    Ended,
    Late,
    Alone,
}

fn memory_file(name: &std::ffi::CStr) -> Result<OwnedFd, Error> {
    memfd_create(name, MemfdFlags::CLOEXEC).during(|| "make a file in memory")
}

/// The beginning of what it wrote.
fn said(output: OwnedFd) -> String {
    let mut file = File::from(output);
    let mut text = Vec::new();
    let read = file.rewind().and_then(|()| file.take(OUTPUT_MAX).read_to_end(&mut text));
    match (read, String::from_utf8_lossy(&text).trim()) {
        (Err(_), _) | (_, "") => String::new(),
        (_, text) => format!(": {text}"),
    }
}
