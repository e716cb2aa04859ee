//! One command, one file. Each parses its own arguments, then does one thing.

mod checkpoint;
mod create;
mod delete;
mod events;
mod exec;
mod features;
mod kill;
mod list;
mod pause;
mod ps;
mod restore;
mod resume;
mod run_container;
mod spec;
mod start;
mod state;
mod update;

use crate::{
    arguments::Global,
    exit_code::ExitCode,
    failure::{Failure, debug},
    help,
};

/// Runs the command of this name.
pub(crate) fn run(global: &Global, name: &str, arguments: Vec<std::ffi::OsString>) -> Result<ExitCode, Failure> {
    debug(global, || format!("{name}: begins (states in {:?})", global.root));
    let done = match name {
        "checkpoint" => checkpoint::run(global, arguments),
        "create" => create::run(global, arguments),
        "delete" => delete::run(global, arguments),
        "events" => events::run(global, arguments),
        "exec" => exec::run(global, arguments),
        "features" => features::run(global, arguments),
        "kill" => kill::run(global, arguments),
        "list" => list::run(global, arguments),
        "pause" => pause::run(global, arguments),
        "ps" => ps::run(global, arguments),
        "restore" => restore::run(global, arguments),
        "resume" => resume::run(global, arguments),
        "run" => run_container::run(global, arguments),
        "spec" => spec::run(global, arguments),
        "start" => start::run(global, arguments),
        "state" => state::run(global, arguments),
        "update" => update::run(global, arguments),
        other => Err(Failure::usage(format!("no such command: {other:?}; see pinrun --help"))),
    };
    debug(global, || format!("{name}: {}", done.as_ref().map_or("failed", |_| "done")));
    done.map_err(|failure| if failure.help { help::of_command(name, &failure.message) } else { failure })
}
