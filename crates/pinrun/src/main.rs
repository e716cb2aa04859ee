//! The OCI command line: drops in for runc under containerd, Podman, Docker and CRI-O.
//!
//! ```text
//! main.rs          the command line, one error, one exit code
//! arguments.rs     global options; each command's own are in its file
//! failure.rs       what went wrong, as containerd and Podman read it (--log, --log-format)
//! command/         one command, one file
//! state/           <root>/<id>: what one call leaves for the next
//! ```

#![forbid(unsafe_code)]

mod arguments;
mod command;
mod failure;
mod state;

use std::process::ExitCode;

fn main() -> ExitCode {
    let (global, command, arguments) = match arguments::parse() {
        Ok(parsed) => parsed,
        Err(failure) => return failure.report(&arguments::Global::default()),
    };
    match command::run(&global, &command, arguments) {
        Ok(code) => code,
        Err(failure) => failure.report(&global),
    }
}
