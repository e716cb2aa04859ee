//! Exit codes of the program.
//!
//! | code | |
//! |---|---|
//! | that of the module | it exited, or returned (0) |
//! | 1 | a component returned an error; with `compile`, the module is not valid |
//! | 74 | with `compile`, the node failed: the module could not be read, or the code not be written |
//! | 126 | the module cannot be loaded or instantiated |
//! | 128 + n | ended by signal n |
//! | 134 | a trap, as after abort(3) |

use std::process::ExitCode;

use wasmtime::{Error, Trap};
use wasmtime_wasi::I32Exit;

/// The arguments are invalid, as for a shell.
const USAGE: u8 = 2;
/// Input or output failed (`EX_IOERR` of sysexits.h).
const NODE: u8 = 74;
/// The module cannot be executed, as for a shell.
const NOT_EXECUTABLE: u8 = 126;
/// 128 + SIGABRT.
const TRAPPED: u8 = 134;

/// Reports an error of the command line.
pub(crate) fn usage(message: &str) -> ExitCode {
    eprintln!("pinion-wasm: {message}");
    ExitCode::from(USAGE)
}

/// Reports that a command failed.
pub(crate) fn failure(error: &Error) -> ExitCode {
    eprintln!("pinion-wasm: {error:#}");
    ExitCode::FAILURE
}

/// Reports that a module was not compiled for a reason other than the module.
pub(crate) fn of_the_node(error: &Error) -> ExitCode {
    eprintln!("pinion-wasm: {error:#}");
    ExitCode::from(NODE)
}

/// Reports that a module cannot be executed.
pub(crate) fn not_executable(module: &str, error: &Error) -> ExitCode {
    eprintln!("pinion-wasm: {module}: {error:#}");
    ExitCode::from(NOT_EXECUTABLE)
}

/// Returns the exit code of a module that ran, and reports a trap.
pub(crate) fn of_module(module: &str, outcome: Result<Result<(), ()>, Error>) -> ExitCode {
    let error = match outcome {
        Ok(Ok(())) => return ExitCode::SUCCESS,
        Ok(Err(())) => return ExitCode::FAILURE,
        Err(error) => error,
    };
    if let Some(I32Exit(code)) = error.downcast_ref() {
        // wait(2) returns the lowest eight bits.
        return ExitCode::from((code & 0xff) as u8);
    }
    match error.downcast_ref::<Trap>() {
        Some(trap) => eprintln!("pinion-wasm: {module}: trap: {trap}\n{error:?}"),
        None => eprintln!("pinion-wasm: {module}: {error:?}"),
    }
    ExitCode::from(TRAPPED)
}
