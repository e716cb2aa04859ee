//! The monitor: parent, reaper, log writer and terminal holder of every container of a node.
//!
//! It has one thread and one epoll loop, and no async runtime: forking a small process is fast, and a process with
//! threads could not clone containers safely. It outlives the daemon, answers its requests according to the contract in
//! `monitor-api`, and never waits for it.
//!
//! ```text
//! serve.rs        start: sealed copy, own mount namespace, journal, signals
//! monitor.rs      state, and the event loop ────┬─▶ connection.rs ──▶ request/<verb>.rs
//!                                               ├─▶ setup.rs, child.rs      containers from clone to execve
//!                                               ├─▶ exec.rs                 exec'd processes
//!                                               ├─▶ hooks.rs                hooks, run on the node by a child
//!                                               ├─▶ drain.rs                the remaining output of a container that
//!                                               exited ├─▶ writers.rs ──▶ log_writer.rs ──▶ log.rs, attach.rs: other
//!                                               processes ├─▶ terminal.rs, pipe.rs    terminals and pipes, and how
//!                                               they are closed ├─▶ upgrade.rs              execution of a new program
//!                                               in this process └─▶ reap.rs ──▶ process.rs  exits, and their status
//! ```

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

// Must be first: its macros shadow those of the standard library in all modules below.
#[macro_use]
mod diagnostics;

mod attach;
mod child;
mod clock;
mod connection;
mod drain;
mod epoll;
mod exec;
mod failure;
mod hooks;
mod inherited_limits;
mod inventory;
mod journals;
mod log;
mod log_writer;
mod monitor;
mod output;
mod pipe;
mod pod_init;
mod process;
mod programs;
mod reap;
mod removal;
mod request;
mod serve;
mod setup;
mod stream;
mod terminal;
mod thaw;
mod timer;
mod token;
mod unwatched;
mod upgrade;
mod writers;

use std::{ffi::OsString, path::PathBuf, process::ExitCode};

const USAGE: &str = "usage: pinmon serve --socket-fd <number> --state <directory> | pinmon --version";
const RESUME: &str =
    "usage: pinmon resume --state-fd <number> --previous-fd <number> [--refused <why>] (used by pinmon itself)";

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let result = match arguments.first().and_then(|first| first.to_str()) {
        Some("--version" | "-V") if arguments.len() == 1 => {
            println!("pinmon {}", env!("CARGO_PKG_VERSION"));
            Ok(())
        }
        Some("--help" | "-h") => {
            println!("{USAGE}\n\nThe monitor of a node's containers; `pinion serve` starts it.");
            Ok(())
        }
        Some("serve") => parse(&arguments[1..]).and_then(|(socket, state)| serve::serve(socket, &state)),
        Some(upgrade::CHECK) if arguments.len() == 1 => upgrade::check_state(),
        Some("resume") => parse_resume(&arguments[1..])
            .and_then(|(state, previous, refused)| upgrade::resume(state, previous, refused)),
        _ => Err(USAGE.to_owned()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("pinmon: {message}");
            ExitCode::FAILURE
        }
    }
}

fn parse(arguments: &[OsString]) -> Result<(i32, PathBuf), String> {
    let (mut socket, mut state) = (None, None);
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let value = || format!("{}: missing value; {USAGE}", argument.display());
        match argument.to_str() {
            Some("--socket-fd") => {
                let text = rest.next().ok_or_else(value)?;
                let number = text.to_str().and_then(|text| text.parse().ok());
                socket = Some(number.ok_or_else(|| format!("--socket-fd {}: not a number", text.display()))?);
            }
            Some("--state") => state = Some(PathBuf::from(rest.next().ok_or_else(value)?)),
            _ => return Err(format!("{}: unknown argument; {USAGE}", argument.display())),
        }
    }
    match (socket, state) {
        (Some(socket), Some(state)) => Ok((socket, state)),
        _ => Err(USAGE.to_owned()),
    }
}

fn parse_resume(arguments: &[OsString]) -> Result<(i32, i32, Option<String>), String> {
    let words: Vec<&str> = arguments.iter().filter_map(|argument| argument.to_str()).collect();
    let (state, previous, refused) = match words[..] {
        ["--state-fd", state, "--previous-fd", previous] => (state, previous, None),
        ["--state-fd", state, "--previous-fd", previous, "--refused", why] => (state, previous, Some(why.to_owned())),
        _ => return Err(RESUME.to_owned()),
    };
    match (state.parse(), previous.parse()) {
        (Ok(state), Ok(previous)) => Ok((state, previous, refused)),
        _ => Err(RESUME.to_owned()),
    }
}
