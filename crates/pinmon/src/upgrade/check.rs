//! Whether a program could go on from a state: asked of a child that runs it, before anything is risked.

use std::{ffi::CString, fs::File, io::Read, os::fd::AsRawFd, time::Duration};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::{AsFd, OwnedFd},
    io::Errno,
    pipe::{PipeFlags, pipe_with},
    process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid},
};
use syscall::inherited;

use super::state::{FORMAT, Head, STATE_MAX, State};

/// What the program is told to do.
pub(crate) const COMMAND: &str = "check-state";
/// Place of the state in the child.
const STATE: i32 = 3;
/// How long it may take; the monitor waits for it.
const PATIENCE: Duration = Duration::from_secs(2);
/// Most of what it says that is passed on.
const WORDS_MAX: u64 = 1024;

/// Runs the candidate on a state; `Err`: why it cannot take over.
pub(super) fn check(program: &OwnedFd, state: &OwnedFd) -> Result<(), String> {
    let wrong = |what: &str, errno: Errno| format!("check the new program: {what}: {errno}");
    let (heard, said) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).map_err(|e| wrong("pipe", e))?;
    let path = CString::new(format!("/proc/self/fd/{}", program.as_raw_fd())).map_err(|e| e.to_string())?;
    let arguments = [c"pinmon".to_owned(), CString::new(COMMAND).map_err(|e| e.to_string())?];
    let files = [rustix::stdio::stdin(), said.as_fd(), said.as_fd(), state.as_fd()];
    let pid = syscall::spawn::spawn(&path, &arguments, &[], &files)
        .map_err(|error| format!("the new program does not start: {error}"))?;
    drop(said);
    let outcome = outcome(pid);
    let mut words = String::new();
    let _ = File::from(heard).take(WORDS_MAX).read_to_string(&mut words);
    match outcome {
        Ok(true) => Ok(()),
        Ok(false) if words.trim().is_empty() => Err("the new program fails without a word".to_owned()),
        Ok(false) => Err(format!("the new program refuses: {}", words.trim().trim_start_matches("pinmon: "))),
        Err(why) => Err(why),
    }
}

/// Waits for the end; whether it was a success.
fn outcome(pid: Pid) -> Result<bool, String> {
    let wrong = |errno: Errno| format!("wait for the new program's check: {errno}");
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(wrong)?;
    let patience = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
    let ended = loop {
        match poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&patience)) {
            Err(Errno::INTR) => {}
            other => break other.map_err(wrong)? > 0,
        }
    };
    if !ended {
        let _ = pidfd_send_signal(&pidfd, Signal::KILL);
    }
    let status = waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED).map_err(wrong)?;
    match ended {
        true => Ok(status.is_some_and(|status| status.exit_status() == Some(0))),
        false => Err(format!("the new program does not answer within {} s", PATIENCE.as_secs())),
    }
}

/// `pinmon check-state`: whether this program could go on from the state on descriptor 3.
pub(crate) fn check_state() -> Result<(), String> {
    let state = inherited::take_inherited(STATE).map_err(|error| format!("take over descriptor {STATE}: {error}"))?;
    read(state).map(drop)
}

/// Reads a state, if it is one that this program understands.
pub(super) fn read(state: OwnedFd) -> Result<State, String> {
    let mut text = Vec::new();
    let file = File::from(state);
    let length = file.metadata().map_err(|error| format!("the state: {error}"))?.len();
    if length > STATE_MAX {
        return Err(format!("the state has {length} bytes, at most {STATE_MAX} are read"));
    }
    let mut at = 0;
    text.resize(length as usize, 0);
    while at < text.len() {
        match rustix::io::pread(&file, &mut text[at..], at as u64) {
            Ok(0) => return Err("the state ended early".to_owned()),
            Ok(n) => at += n,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(format!("read the state: {errno}")),
        }
    }
    let head: Head = serde_json::from_slice(&text).map_err(|error| format!("the state is none: {error}"))?;
    let own = env!("CARGO_PKG_VERSION");
    if head.format != FORMAT || head.contract != monitor_api::MAJOR {
        return Err(format!(
            "pinmon {own} speaks version {} of the daemon's contract and state format {FORMAT}; the daemon that runs and \
             pinmon {} speak {} and {}: install a pinmon of that version, or end all containers and restart",
            monitor_api::MAJOR,
            head.version,
            head.contract,
            head.format
        ));
    }
    serde_json::from_slice(&text)
        .map_err(|error| format!("pinmon {own} does not understand the state of pinmon {}: {error}", head.version))
}
