//! `pinion-agent`: the first process of a microVM's guest. It mounts the kernel's file systems, loads modules, and runs
//! the containers of its pod for the daemon on the node, with the library that `pinrun` and `pinmon` use.
//!
//! ```text
//! daemon ⇄ virtio-serial port agent-… ⇄ Connection ─▶ requests ─▶ Process (a container, or an exec)
//!                                                                   │ pipes, terminal
//! FIFOs on the node ⇄ a port per stream ⇄ Pump ⇄────────────────────┘
//! ```
//!
//! On the node it has one task: it starts virtual machine monitors whose guests come from a template ([`launch`]).
//!
//! One thread, one poll(2), because a container is a clone of this process. Nothing here waits for a container or for the
//! daemon: what is not ready is tried again ([`Agent::run`]).

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod abandon;
mod agent;
mod boot;
mod capacity;
mod clock;
mod configure;
mod connection;
mod create;
mod end;
mod event_loop;
mod exec;
mod failure;
mod forward;
mod forwards;
#[cfg(feature = "hostile")]
mod hostile;
mod launch;
mod modules;
mod network;
mod poll;
mod ports;
mod process;
mod pump;
mod request;
mod setup;

use std::{io, process::ExitCode};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    if let Some(module) = modules::requested(&arguments).filter(|_| std::process::id() != 1) {
        return modules::load_requested(module).map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS);
    }
    if let Some(launch) = launch::requested(&arguments) {
        // The first process of the jail may be number 1, too.
        eprintln!("pinion-agent: {}", launch.run());
        return ExitCode::FAILURE;
    }
    if std::process::id() != 1 {
        eprintln!("pinion-agent {}: it is the first process of a guest, and is not started by people", VERSION);
        return ExitCode::from(2);
    }
    let outcome = boot::prepare().and_then(|()| serve());
    if let Err(error) = outcome {
        // The console is the log of the virtual machine, and the end of this process its end.
        eprintln!("pinion-agent: {error}");
    }
    boot::power_off();
    ExitCode::FAILURE
}

/// Serves the daemon until a request ends it.
fn serve() -> io::Result<()> {
    #[cfg(feature = "hostile")]
    if hostile::is_requested() {
        return hostile::run();
    }
    agent::Agent::new()?.run()
}

/// Version of the agent.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Adds the operation to an error.
fn during<E: Into<io::Error>>(operation: impl std::fmt::Display) -> impl FnOnce(E) -> io::Error {
    move |error| {
        let error = error.into();
        io::Error::new(error.kind(), format!("{operation}: {error}"))
    }
}
