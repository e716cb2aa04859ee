//! The monitor: parent, reaper, log writer and terminal holder of every container of a node.
//!
//! One thread, one epoll loop, no runtime: forking from a small process is quick, and a threaded one could not clone
//! containers safely. It outlives the daemon, answers it by the contract in `monitor-api`, and never waits for it.
//!
//! ```text
//! serve.rs        start: sealed copy, own mount namespace, journal, signals
//! monitor.rs      what is held, and the loop ──┬─▶ connection.rs ──▶ request/<verb>.rs
//!                                              ├─▶ setup.rs, child.rs      a container on its way to execve
//!                                              ├─▶ hooks.rs                programs of the node, run by a child
//!                                              ├─▶ drain.rs                the end of a container's output
//!                                              ├─▶ writers.rs ──▶ log_writer.rs ──▶ log.rs, attach.rs: other processes
//!                                              ├─▶ terminal.rs, pipe.rs    masters and pipes, and who closes them
//!                                              ├─▶ upgrade.rs              another program in this process
//!                                              └─▶ reap.rs ──▶ process.rs  ends, and how they came
//! ```

#![forbid(unsafe_code)]

// First: its macros take the place of the standard library's in all that follows.
#[macro_use]
mod diagnostics;

mod attach;
mod child;
mod clock;
mod command;
mod connection;
mod drain;
mod epoll;
mod failure;
mod hooks;
mod inherit;
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
    "usage: pinmon resume --state-fd <number> --previous-fd <number> [--refused <why>]: for pinmon itself";

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
        let value = || format!("{}: value missing; {USAGE}", argument.display());
        match argument.to_str() {
            Some("--socket-fd") => {
                let text = rest.next().ok_or_else(value)?;
                let number = text.to_str().and_then(|text| text.parse().ok());
                socket = Some(number.ok_or_else(|| format!("--socket-fd {}: not a number", text.display()))?);
            }
            Some("--state") => state = Some(PathBuf::from(rest.next().ok_or_else(value)?)),
            _ => return Err(format!("{}: unknown; {USAGE}", argument.display())),
        }
    }
    match (socket, state) {
        (Some(socket), Some(state)) => Ok((socket, state)),
        _ => Err(USAGE.to_owned()),
    }
}

fn parse_resume(arguments: &[OsString]) -> Result<(i32, i32, Option<String>), String> {
    let texts: Vec<&str> = arguments.iter().filter_map(|argument| argument.to_str()).collect();
    let (state, previous, refused) = match texts[..] {
        ["--state-fd", state, "--previous-fd", previous] => (state, previous, None),
        ["--state-fd", state, "--previous-fd", previous, "--refused", why] => (state, previous, Some(why.to_owned())),
        _ => return Err(RESUME.to_owned()),
    };
    match (state.parse(), previous.parse()) {
        (Ok(state), Ok(previous)) => Ok((state, previous, refused)),
        _ => Err(RESUME.to_owned()),
    }
}
