//! `pinion`: the daemon (`pinion serve`) and the command line for users.
//!
//! Each CLI command is one file under `command/`; the modules next to that directory are shared by several commands.
//! Commands other than `serve` and `config` are clients of the daemon's socket and know only what its messages contain.

#![forbid(unsafe_code)]

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

fn main() {
    terminal::restore_on_panic();
    let code = match dispatch::run(usage::arguments()) {
        Ok(code) => code,
        Err(failure) => {
            failure.print();
            failure.code
        }
    };
    // A pending read of standard input in a runtime thread must not keep the process alive.
    std::process::exit(code.into())
}
