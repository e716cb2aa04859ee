//! `pinion-wasm`: runs a WebAssembly module as the program of a container.
//!
//! ```text
//! pinion-wasm engine                       prints the version of the engine, which names the cache of compiled code
//! pinion-wasm compile < MODULE > CODE      compiles in a sandbox: no file can be opened, memory and time are limited
//! pinion-wasm run [--code-fd=N] -- MODULE ARGUMENTS…
//! ```
//!
//! `run` is the process of the container: it is executed by descriptor in the container's namespaces, cgroups, seccomp
//! filter and capabilities, and its arguments, environment, working directory and descriptors 0 to 2 are those that the
//! container's program would have. With `--code-fd`, the descriptor N is compiled code of this engine, which is mapped,
//! so that no code is compiled and containers share its pages. Otherwise the module is compiled in the container.
//!
//! `unsafe` is in [`code`] only.

#![deny(unsafe_code)]

mod arguments;
#[expect(unsafe_code, reason = "loads compiled code: see the module")]
mod code;
mod compile;
mod engine;
mod exit;
mod host;
mod http;
mod limits;
mod run;
mod sandbox;
mod signals;

use std::process::ExitCode;

use arguments::Command;

fn main() -> ExitCode {
    let command = match Command::parse(std::env::args_os()) {
        Ok(command) => command,
        Err(message) => return exit::usage(&message),
    };
    let outcome = match command {
        Command::Engine => engine::print_version(),
        Command::Compile(limits) => return compile::compile(&limits),
        Command::Run(module) => return run::run(&module),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => exit::failure(&error),
    }
}
