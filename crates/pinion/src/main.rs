//! `pinion`: the daemon (`pinion serve`) and the command line for users.
//!
//! Each CLI command is one file under `command/`; the modules next to that directory are shared by several commands.
//! Commands other than `serve` and `config` are clients of the daemon's socket and know only what its messages contain.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod arguments;
mod client;
mod command;
mod daemon;
mod dispatch;
mod environment;
mod failure;
mod human;
mod log_file;
mod lookup;
mod output;
mod ports;
mod progress;
mod quantity;
mod report;
mod session;
mod signal_name;
mod table;
mod terminal;
mod timestamp;
mod usage;
mod volume;

use client::Client;
use failure::Failure;

#[expect(clippy::disallowed_methods, reason = "a pending read of standard input must not keep the process alive")]
fn main() {
    terminal::restore_on_panic();
    syscall::allocator::limit_arenas(1);
    // On a thread of its own, which frees what the parser has used of a stack: 0.5 MiB in a build for development.
    let arguments = std::thread::spawn(usage::arguments).join();
    let arguments = arguments.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    let code = match arguments.and_then(dispatch::run) {
        Ok(code) => code,
        Err(failure) => {
            failure.print();
            failure.code
        }
    };
    std::process::exit(code.into())
}
