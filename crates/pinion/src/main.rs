//! `pinion`: the daemon (`pinion serve`) and the command line for people.
//!
//! One command is one file under `command/`; the modules beside it are what several commands share. Commands other than
//! `serve` and `config` are clients of the daemon's socket and know nothing that its messages do not tell.

#![forbid(unsafe_code)]

mod arguments;
mod client;
mod command;
mod daemon;
mod environment;
mod failure;
mod human;
mod log_file;
mod lookup;
mod moment;
mod output;
mod ports;
mod progress;
mod quantity;
mod session;
mod signal_name;
mod table;
mod terminal;
mod usage;
mod volume;

use client::Client;
use failure::Failure;

fn main() {
    terminal::restore_on_panic();
    let code = match command::run(usage::arguments()) {
        Ok(code) => code,
        Err(failure) => {
            failure.print();
            failure.code
        }
    };
    // Reads of standard input that nobody waits for any more must not hold the process.
    std::process::exit(code.into())
}
