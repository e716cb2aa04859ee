//! The OCI command line: a drop-in replacement for runc under containerd, Podman, Docker and CRI-O.
//!
//! ```text
//! main.rs          parses the command line, runs one command, reports one error
//! arguments.rs     global options; the options of a command are in its file
//! flags.rs         the option parser
//! failure.rs       errors
//! log.rs           reports errors, and logs, in the formats that containerd and Podman read (--log, --log-format)
//! command/         one file per command
//! bundle.rs        reads config.json and makes its paths absolute
//! launch.rs        creates a container from a bundle, up to the wait for its start (create, run)
//! criu/            checkpoint and restore
//! state/           <root>/<id>: the state that one call leaves for the next
//! ```

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]
#![cfg_attr(not(test), no_main)]
#![cfg_attr(test, allow(dead_code))]

mod arguments;
mod bundle;
mod clock;
mod command;
mod console;
mod criu;
mod exit_code;
mod failure;
mod flags;
mod foreground;
mod help;
mod hook_output;
mod keyring;
mod launch;
mod log;
mod module;
mod open_files;
mod preserve;
mod signals;
mod staging;
mod state;

use arguments::Action;

/// Bytes by which the heap grows: more than the creation of a container needs, so that it grows only once.
const HEAP: u32 = 512 << 10;

#[cfg(not(test))]
syscall::program_entry!(run);

fn run() -> u8 {
    syscall::allocator::grow_by(HEAP);
    syscall::signals::reset_sigchld();
    let (global, action) = arguments::parse(std::env::args_os().skip(1));
    let result = match action {
        Ok(Action::Command(name, arguments)) => command::run(&global, &name, arguments),
        Ok(Action::Help) => Ok(help::show()),
        Ok(Action::Version) => Ok(help::version()),
        Err(failure) => Err(failure),
    };
    result.unwrap_or_else(|failure| log::report(&failure, &global)).number()
}
