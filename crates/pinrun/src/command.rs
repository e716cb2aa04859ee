//! The commands, one file each. Every command parses its own arguments.

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
    failure::{Failure, FailureKind},
    help,
    log::debug,
};

/// Runs the command of this name.
pub(crate) fn run(global: &Global, name: &str, arguments: Vec<std::ffi::OsString>) -> Result<ExitCode, Failure> {
    debug(global, || format!("{name}: started (root {:?})", global.root));
    let result = match name {
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
        other => Err(Failure::usage(format!("unknown command {other:?}; see pinrun --help"))),
    };
    debug(global, || format!("{name}: {}", result.as_ref().map_or("failed", |_| "succeeded")));
    result.map_err(
        |failure| if failure.kind == FailureKind::Help { help::for_command(name, &failure.message) } else { failure },
    )
}
