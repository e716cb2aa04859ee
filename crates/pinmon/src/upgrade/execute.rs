//! Steps of an upgrade from the request to execve.

use std::{ffi::CString, os::fd::AsRawFd, os::unix::ffi::OsStringExt};

use monitor_api::{Failure, FailureKind};
use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{MemfdFlags, Mode, OFlags, memfd_create, open},
    io::{Errno, FdFlags, fcntl_setfd},
};
use syscall::exec::{StringArray, execve_file};

use super::{Pending, check::check, save::Saved, state::State};
use crate::{clock, connection::RequestId, monitor::Monitor};

impl Monitor {
    /// Continues a requested upgrade once no operation is pending. Returns only if it was not possible.
    pub(crate) fn try_upgrade(&mut self) {
        if self.upgrade.is_none() {
            return;
        }
        let mut pending_work = self.pending_work();
        if pending_work.is_none() {
            // Log writers of the next program start with the new files.
            self.answer_reopens();
            pending_work = self.pending_work();
        }
        let Some(pending) = &self.upgrade else { return };
        if pending_work.is_some() && clock::monotonic() < pending.until {
            return;
        }
        let Some(pending) = self.upgrade.take() else { return };
        let why = match pending_work {
            Some(why) => why,
            None => {
                let why = self.execute(&pending);
                self.reassign_outputs(None, None);
                why
            }
        };
        let request_id = pending.request_id;
        drop(pending);
        self.upgrade_failed(request_id, &why);
    }

    fn upgrade_failed(&mut self, request_id: RequestId, why: &str) {
        let message = format!("upgrade the monitor: {why}; pinmon {} keeps running", env!("CARGO_PKG_VERSION"));
        self.reply(request_id, Err(Failure::new(FailureKind::State, message)));
        // Requests that arrived in the meantime were not read, and edge-triggered epoll does not report them again.
        self.link_ready();
    }

    /// Executes the program. Returns the reason if it fails.
    fn execute(&mut self, pending: &Pending) -> String {
        self.kill_writers();
        let journal = self.journals.placeholder();
        let close_queue = self.terminals.waiting();
        let Saved { state, files } = self.save(pending.request_id, journal, &close_queue);
        let attempt = || -> Result<std::convert::Infallible, String> {
            let state = write(&state)?;
            check(&pending.program, &state)?;
            let current = open("/proc/self/exe", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
                .map_err(|errno| format!("open this program: {errno}"))?;
            let all: Vec<BorrowedFd<'_>> = files.iter().copied().chain([state.as_fd(), current.as_fd()]).collect();
            keep_over_execve(&all, true).map_err(|errno| format!("keep descriptors open over execve: {errno}"))?;
            let error = become_program(pending.program.as_fd(), &state, &current, None);
            // Only these flags were changed.
            let _ = keep_over_execve(&all, false);
            Err(error)
        };
        match attempt() {
            Err(why) => why,
        }
    }
}

/// Executes a program that continues from this state and can return to the program `previous`. Returns only if it
/// fails, with the reason.
pub(super) fn become_program(
    program: BorrowedFd<'_>,
    state: &impl AsRawFd,
    previous: &impl AsRawFd,
    refused: Option<&str>,
) -> String {
    let number = |fd: &dyn Fn() -> i32| fd().to_string();
    let mut arguments = vec![
        "pinmon".to_owned(),
        "resume".to_owned(),
        "--state-fd".to_owned(),
        number(&|| state.as_raw_fd()),
        "--previous-fd".to_owned(),
        number(&|| previous.as_raw_fd()),
    ];
    arguments.extend(refused.into_iter().flat_map(|why| ["--refused".to_owned(), why.replace('\0', " ")]));
    let strings = |arguments: Vec<Vec<u8>>| arguments.into_iter().map(CString::new).collect::<Result<Vec<_>, _>>();
    let environment = std::env::vars_os().map(|(name, value)| [name.into_vec(), value.into_vec()].join(&b'='));
    let (Ok(arguments), Ok(environment)) =
        (strings(arguments.into_iter().map(String::into_bytes).collect()), strings(environment.collect()))
    else {
        return "an argument or environment variable contains a zero byte".to_owned();
    };
    let error = execve_file(program, &StringArray::new(arguments), &StringArray::new(environment));
    format!("execute the new program: {error}")
}

fn keep_over_execve(files: &[BorrowedFd<'_>], keep: bool) -> Result<(), Errno> {
    let flags = if keep { FdFlags::empty() } else { FdFlags::CLOEXEC };
    files.iter().try_for_each(|file| fcntl_setfd(file, flags))
}

fn write(state: &State) -> Result<OwnedFd, String> {
    let text = serde_json::to_vec(state).map_err(|error| format!("write the state: {error}"))?;
    let failed = |errno: Errno| format!("write the state: {errno}");
    let file = memfd_create(c"pinmon-state", MemfdFlags::CLOEXEC).map_err(failed)?;
    let mut rest = &text[..];
    while !rest.is_empty() {
        match rustix::io::write(&file, rest) {
            Ok(n) => rest = &rest[n..],
            Err(Errno::INTR) => {}
            Err(errno) => return Err(failed(errno)),
        }
    }
    Ok(file)
}
