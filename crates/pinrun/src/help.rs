//! The output of `--help` and `--version`.

use crate::{exit_code::ExitCode, failure::Failure};

const HELP: &str = "\
pinrun runs containers according to the OCI runtime specification.

USAGE:
   pinrun [global options] command [command options] [arguments...]

COMMANDS:
   checkpoint  save a running container's state with CRIU
   create      create a container; its program waits for start
   delete      delete a container and all of its resources
   events      show resource usage (--stats) and OOM events
   exec        execute a process in a running container
   features    show the supported features, as JSON
   kill        send a signal to a container
   list        list containers
   pause       freeze a container
   ps          show the processes of a container
   restore     restore a container from a checkpoint
   resume      thaw a frozen container
   run         create and start a container
   spec        write a template config.json
   start       start a created container
   state       show a container's state, as JSON
   update      change a container's limits

GLOBAL OPTIONS:
   --root DIRECTORY      directory of container state (default: /run/pinrun)
   --log FILE            also write errors and warnings to FILE
   --log-format FORMAT   text (default) or json
   --debug               log debug messages
   --systemd-cgroup      create cgroups through systemd; cgroupsPath is slice:prefix:name
   --cgroup-manager NAME cgroupfs (default), systemd, or disabled: the container has no cgroup
   --rootless MODE       true, false or auto (default)
   --help, -h            show this help
   --version, -v         show the version
";

/// Prints the global help.
pub(crate) fn show() -> ExitCode {
    print!("{HELP}");
    ExitCode::SUCCESS
}

/// Returns the help of one command.
pub(crate) fn for_command(name: &str, options: &str) -> Failure {
    let line = HELP.lines().find(|line| line.split_whitespace().next() == Some(name)).unwrap_or(name).trim();
    let options = if options.is_empty() { String::new() } else { format!("\nOPTIONS:\n{options}") };
    Failure::help(format!("{line}\n\nUSAGE:\n   pinrun {name} [options] [arguments...]\n{options}"))
}

/// The commit of the sources, which scripts/build passes in the environment.
const COMMIT: &str = match option_env!("PINION_COMMIT") {
    Some(commit) if !commit.is_empty() => commit,
    _ => "unknown",
};

/// Prints the version in the lines that containerd, Podman and Docker parse.
pub(crate) fn version() -> ExitCode {
    println!("pinrun version {}\ncommit: {COMMIT}\nspec: 1.3.0", env!("CARGO_PKG_VERSION"));
    ExitCode::SUCCESS
}
