//! Steps of an upgrade from the request to execve.

use std::{convert::Infallible, ffi::CString, os::fd::AsRawFd, os::unix::ffi::OsStringExt};

use monitor_api::{Failure, FailureKind};
use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{MemfdFlags, Mode, OFlags, memfd_create, open},
    io::{Errno, FdFlags, fcntl_setfd},
};
use syscall::exec::{StringArray, execve_file};

use super::{
    check::check,
    save::{Saved, pending_work, save},
    state::State,
};
use crate::monitor::{Monitor, PendingUpgrade};

/// Continues a requested upgrade once no operation is pending. Returns only if it was not possible: `true` if it was
/// given up, so that requests are read again.
pub(crate) fn try_execute(monitor: &mut Monitor) -> bool {
    if monitor.upgrade.is_none() {
        return false;
    }
    let mut pending = pending_work(monitor);
    if pending.is_none() {
        // Log writers of the next program start with the new files.
        monitor.outputs.answer_reopens(&mut monitor.services);
        monitor.settle_link();
        pending = pending_work(monitor);
    }
    let is_due = |upgrade: &mut PendingUpgrade| pending.is_none() || upgrade.is_late();
    let Some(upgrade) = monitor.upgrade.take_if(is_due) else { return false };
    let why = pending.unwrap_or_else(|| {
        let why = execute(monitor, &upgrade);
        monitor.outputs.reassign(None, None, &mut monitor.services);
        why
    });
    let request_id = upgrade.request_id;
    drop(upgrade);
    let message = format!("upgrade the monitor: {why}; pinmon {} keeps running", env!("CARGO_PKG_VERSION"));
    monitor.services.reply(request_id, Err(Failure::new(FailureKind::State, message)));
    true
}

/// Executes the program. Returns the reason if it fails.
fn execute(monitor: &mut Monitor, upgrade: &PendingUpgrade) -> String {
    monitor.outputs.kill_writers(&monitor.services);
    let journal = monitor.outputs.journals.placeholder();
    let closing = monitor.services.closers.queue.waiting();
    let Saved { state, files } = save(monitor, upgrade.request_id, journal, &closing);
    let attempt = || -> Result<Infallible, String> {
        let state = write(&state)?;
        check(&upgrade.program, &state)?;
        let current = open("/proc/self/exe", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            .map_err(|errno| format!("open this program: {errno}"))?;
        let all: Vec<BorrowedFd<'_>> = files.iter().copied().chain([state.as_fd(), current.as_fd()]).collect();
        keep_over_execve(&all, true).map_err(|errno| format!("keep descriptors open over execve: {errno}"))?;
        let error = become_program(upgrade.program.as_fd(), &state, &current, None);
        // Only these flags were changed.
        let _ = keep_over_execve(&all, false);
        Err(error)
    };
    match attempt() {
        Err(why) => why,
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
