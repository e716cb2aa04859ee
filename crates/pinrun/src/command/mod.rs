//! One command, one file. Each parses its own arguments, then does one thing.

use crate::{arguments::Global, exit_code::ExitCode, failure::Failure, help};

macro_rules! commands {
    ($($module:ident $name:literal),* $(,)?) => {
        $(mod $module;)*

        /// Runs the command of this name.
        pub(crate) fn run(global: &Global, name: &str, arguments: Vec<std::ffi::OsString>) -> Result<ExitCode, Failure> {
            let done = match name {
                $($name => $module::run(global, arguments),)*
                other => Err(Failure::usage(format!("no such command: {other:?}; see pinrun --help"))),
            };
            done.map_err(|failure| if failure.help { help::of_command(name, &failure.message) } else { failure })
        }
    };
}

commands! {
    checkpoint "checkpoint",
    create "create",
    delete "delete",
    events "events",
    exec "exec",
    features "features",
    kill "kill",
    list "list",
    pause "pause",
    ps "ps",
    restore "restore",
    resume "resume",
    run_container "run",
    spec "spec",
    start "start",
    state "state",
    update "update",
}
