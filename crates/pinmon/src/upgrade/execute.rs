//! From the request to execve, or back to work with the reason why not.

use std::{ffi::CString, os::fd::AsRawFd, os::unix::ffi::OsStringExt};

use monitor_api::{Failure, FailureKind};
use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{MemfdFlags, Mode, OFlags, memfd_create, open},
    io::{Errno, FdFlags, fcntl_setfd},
};
use syscall::exec::{StringArray, execve_file};

use super::{Pending, check::check, save::Saved, state::State};
use crate::{clock, connection::Asked, monitor::Monitor};

impl Monitor {
    /// Goes on with an upgrade that was asked for, once nothing is on its way. Returns only where it could not be done.
    pub(crate) fn try_upgrade(&mut self) {
        if self.upgrade.is_none() {
            return;
        }
        let mut unsettled = self.unsettled();
        if unsettled.is_none() {
            // The next program's log writers begin with the new files.
            self.answer_reopens();
            unsettled = self.unsettled();
        }
        let Some(pending) = &self.upgrade else { return };
        if unsettled.is_some() && clock::monotonic() < pending.until {
            return;
        }
        let Some(pending) = self.upgrade.take() else { return };
        let why = match unsettled {
            Some(why) => why,
            None => {
                let why = self.execute(&pending);
                self.renew_outputs(None, None);
                why
            }
        };
        let asked = pending.asked;
        drop(pending);
        self.upgrade_failed(asked, &why);
    }

    fn upgrade_failed(&mut self, asked: Asked, why: &str) {
        let message = format!("upgrade the monitor: {why}; pinmon {} goes on", env!("CARGO_PKG_VERSION"));
        self.reply(asked, Err(Failure::new(FailureKind::State, message)));
        // What came meanwhile was not read, and epoll will not tell of it again.
        self.link_ready();
    }

    /// Returns why it did not happen.
    fn execute(&mut self, pending: &Pending) -> String {
        self.kill_writers();
        let journal = self.journals.placeholder();
        let closing = self.terminals.waiting();
        let Saved { state, files } = self.save(pending.asked, journal, &closing);
        let attempt = || -> Result<std::convert::Infallible, String> {
            let state = write(&state)?;
            check(&pending.program, &state)?;
            let own = open("/proc/self/exe", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
                .map_err(|errno| format!("open this program: {errno}"))?;
            let all: Vec<BorrowedFd<'_>> = files.iter().copied().chain([state.as_fd(), own.as_fd()]).collect();
            keep_over_execve(&all, true).map_err(|errno| format!("leave descriptors open: {errno}"))?;
            let error = become_program(pending.program.as_fd(), &state, &own, None);
            // Nothing changed but these flags.
            let _ = keep_over_execve(&all, false);
            Err(error)
        };
        match attempt() {
            Err(why) => why,
        }
    }
}

/// Executes a program to go on from this state, `previous` being the one to return to. Returns only with the reason why
/// not.
pub(super) fn become_program(
    program: BorrowedFd<'_>,
    state: &impl AsRawFd,
    previous: &impl AsRawFd,
    refused: Option<&str>,
) -> String {
    let number = |fd: &dyn Fn() -> i32| fd().to_string();
    let mut words = vec![
        "pinmon".to_owned(),
        "resume".to_owned(),
        "--state-fd".to_owned(),
        number(&|| state.as_raw_fd()),
        "--previous-fd".to_owned(),
        number(&|| previous.as_raw_fd()),
    ];
    words.extend(refused.into_iter().flat_map(|why| ["--refused".to_owned(), why.replace('\0', " ")]));
    let strings = |words: Vec<Vec<u8>>| words.into_iter().map(CString::new).collect::<Result<Vec<_>, _>>();
    let environment = std::env::vars_os().map(|(name, value)| [name.into_vec(), value.into_vec()].join(&b'='));
    let (Ok(arguments), Ok(environment)) =
        (strings(words.into_iter().map(String::into_bytes).collect()), strings(environment.collect()))
    else {
        return "an argument or a variable holds a zero byte".to_owned();
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
    let wrong = |errno: Errno| format!("write the state: {errno}");
    let file = memfd_create(c"pinmon-state", MemfdFlags::CLOEXEC).map_err(wrong)?;
    let mut rest = &text[..];
    while !rest.is_empty() {
        match rustix::io::write(&file, rest) {
            Ok(n) => rest = &rest[n..],
            Err(Errno::INTR) => {}
            Err(errno) => return Err(wrong(errno)),
        }
    }
    Ok(file)
}
