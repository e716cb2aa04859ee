//! The monitor: parent, reaper, log writer and terminal holder of every container of a node.
//!
//! It has one thread and one epoll loop, and no async runtime: forking a small process is fast, and a process with
//! threads could not clone containers safely. It outlives the daemon, answers its requests according to the contract in
//! `monitor-api`, and never waits for it.
//!
//! ```text
//! start.rs         a new monitor ─┐
//! upgrade.rs       a resumed one ─┴─▶ event_loop.rs ──▶ request/<verb>.rs   one iteration: events, timers, jobs
//!                                          │                  │
//!                                          ▼                  ▼
//! monitor.rs       its components, and monitor/<flow>.rs: what spans them (setup, exit, removal of a container)
//!                     │
//!                     ├─▶ containers.rs, exec.rs, hooks.rs, namespaces.rs      processes from clone to exit
//!                     ├─▶ output.rs ──▶ log_writer.rs ──▶ log.rs               output, and the processes that log it
//!                     ├─▶ oom_kills.rs                                         counts of cgroups that systemd removes
//!                     └─▶ removal.rs, thaw.rs, mounts.rs                       jobs that are done a piece at a time
//!                              │
//!                              ▼
//! services.rs      what all components use: event.rs (epoll, timers), link.rs (the daemon), closing.rs (the processes
//!                  that close terminals and pipes)
//! ```
//!
//! Modules use each other downwards only. A component knows no other: what must happen elsewhere, it returns as a value.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

// Must be first: its macros shadow those of the standard library in all modules below.
#[macro_use]
mod diagnostics;

mod clock;
mod closing;
mod containers;
mod event;
mod event_loop;
mod exec;
mod failure;
mod hooks;
mod inherited_limits;
mod link;
mod log;
mod log_writer;
mod monitor;
mod mounts;
mod namespaces;
mod oci_runtime;
mod oom_kills;
mod output;
mod priority;
mod process;
mod programs;
mod removal;
mod request;
mod sample;
mod services;
mod signals;
mod start;
mod stream;
mod thaw;
mod upgrade;

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
        Some("serve") => {
            parse(&arguments[1..]).and_then(|(socket, state)| start::start(socket, &state)).and_then(event_loop::run)
        }
        Some(upgrade::CHECK) if arguments.len() == 1 => upgrade::check_state(),
        Some("resume") => parse_resume(&arguments[1..])
            .and_then(|(state, previous, refused)| upgrade::resume(state, previous, refused))
            .and_then(event_loop::run),
        Some(sample::SUBCOMMAND) => {
            let rest: Vec<&str> = arguments[1..].iter().filter_map(|argument| argument.to_str()).collect();
            match sample::run(&rest) {
                Ok(code) => return ExitCode::from(code),
                Err(message) => Err(message),
            }
        }
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
