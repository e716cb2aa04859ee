//! Check whether a program can continue from a state, made by a child before anything is changed.

use std::{ffi::CString, fs::File, io::Read, os::fd::AsRawFd, time::Duration};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::{AsFd, OwnedFd},
    io::Errno,
    pipe::{PipeFlags, pipe_with},
    process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid},
};
use syscall::inherited;

use super::state::{FORMAT, FORMAT_EXTERNAL, Head, STATE_MAX, State};

/// Subcommand of the check.
pub(crate) const SUBCOMMAND: &str = "check-state";
/// Descriptor of the state in the child.
const STATE: i32 = 3;
/// Time limit of the check. The monitor waits for it.
const TIME_LIMIT: Duration = Duration::from_secs(2);
/// Maximum number of bytes of its output that are reported.
const OUTPUT_MAX: u64 = 1024;

/// Checks a program with a state. Returns the reason if it cannot take over.
pub(super) fn check(program: &OwnedFd, state: &OwnedFd) -> Result<(), String> {
    let failed = |step: &str, errno: Errno| format!("check the new program: {step}: {errno}");
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).map_err(|e| failed("pipe", e))?;
    let path = CString::new(format!("/proc/self/fd/{}", program.as_raw_fd())).map_err(|e| e.to_string())?;
    let arguments = [c"pinmon".to_owned(), CString::new(SUBCOMMAND).map_err(|e| e.to_string())?];
    let files = [rustix::stdio::stdin(), writer.as_fd(), writer.as_fd(), state.as_fd()];
    let pid = syscall::spawn::spawn(&path, &arguments, &[], &files)
        .map_err(|error| format!("the new program does not start: {error}"))?;
    drop(writer);
    let outcome = outcome(pid);
    let mut output = String::new();
    let _ = File::from(reader).take(OUTPUT_MAX).read_to_string(&mut output);
    match outcome {
        Ok(true) => Ok(()),
        Ok(false) if output.trim().is_empty() => Err("the new program fails without a message".to_owned()),
        Ok(false) => Err(format!("the new program refuses: {}", output.trim().trim_start_matches("pinmon: "))),
        Err(why) => Err(why),
    }
}

/// Waits for the exit of the check. Returns whether it succeeded.
fn outcome(pid: Pid) -> Result<bool, String> {
    let failed = |errno: Errno| format!("wait for the new program's check: {errno}");
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(failed)?;
    let timeout = Timespec { tv_sec: TIME_LIMIT.as_secs() as i64, tv_nsec: 0 };
    let ended = loop {
        match poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&timeout)) {
            Err(Errno::INTR) => {}
            other => break other.map_err(failed)? > 0,
        }
    };
    if !ended {
        let _ = pidfd_send_signal(&pidfd, Signal::KILL);
    }
    let status = waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED).map_err(failed)?;
    match ended {
        true => Ok(status.is_some_and(|status| status.exit_status() == Some(0))),
        false => Err(format!("the check of the new program timed out after {} s", TIME_LIMIT.as_secs())),
    }
}

/// Implements `pinmon check-state`: checks whether this program can continue from the state on descriptor 3.
pub(crate) fn check_state() -> Result<(), String> {
    let state = inherited::take_inherited(STATE).map_err(|error| format!("take over descriptor {STATE}: {error}"))?;
    read_state(state).map(drop)
}

/// Reads a state, if this program supports its format.
pub(super) fn read_state(state: OwnedFd) -> Result<State, String> {
    let mut text = Vec::new();
    let file = File::from(state);
    let length = file.metadata().map_err(|error| format!("stat the state: {error}"))?.len();
    if length > STATE_MAX {
        return Err(format!("the state has {length} bytes; the maximum is {STATE_MAX}"));
    }
    let mut at = 0;
    text.resize(length as usize, 0);
    while at < text.len() {
        match rustix::io::pread(&file, &mut text[at..], at as u64) {
            Ok(0) => return Err("the state is truncated".to_owned()),
            Ok(n) => at += n,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(format!("read the state: {errno}")),
        }
    }
    let head: Head = serde_json::from_slice(&text).map_err(|error| format!("parse the state: {error}"))?;
    let version = env!("CARGO_PKG_VERSION");
    if ![FORMAT, FORMAT_EXTERNAL].contains(&head.format) || head.contract != monitor_api::MAJOR {
        return Err(format!(
            "pinmon {version} implements contract version {} and state format {FORMAT}, but the running daemon and \
             pinmon {} use {} and {}; install a pinmon of that version, or end all containers and restart",
            monitor_api::MAJOR,
            head.version,
            head.contract,
            head.format
        ));
    }
    serde_json::from_slice(&text)
        .map_err(|error| format!("pinmon {version} cannot parse the state of pinmon {}: {error}", head.version))
}
