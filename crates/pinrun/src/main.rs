//! The OCI command line: drops in for runc under containerd, Podman, Docker and CRI-O.
//!
//! ```text
//! main.rs          the command line, one error, one exit code
//! arguments.rs     global options; each command's own are in its file
//! flags.rs         how options are written
//! failure.rs       what went wrong, as containerd and Podman read it (--log, --log-format)
//! command/         one command, one file
//! bundle.rs        config.json, read and completed once
//! launch.rs        from a bundle to a container that waits (create, run)
//! criu/            checkpoints
//! state/           <root>/<id>: what one call leaves for the next
//! ```

#![forbid(unsafe_code)]
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
mod open_files;
mod preserve;
mod signals;
mod staging;
mod state;

use arguments::Wanted;

/// As much as a container's life needs; the heap grows once.
const HEAP: u32 = 512 << 10;

#[cfg(not(test))]
syscall::program_entry!(run);

fn run() -> u8 {
    syscall::allocator::grow_by(HEAP);
    syscall::signals::keep_ended_children();
    let (global, wanted) = arguments::parse(std::env::args_os().skip(1));
    let done = match wanted {
        Ok(Wanted::Command(name, arguments)) => command::run(&global, &name, arguments),
        Ok(Wanted::Help) => Ok(help::show()),
        Ok(Wanted::Version) => Ok(help::version()),
        Err(failure) => Err(failure),
    };
    done.unwrap_or_else(|failure| failure.report(&global)).number()
}
