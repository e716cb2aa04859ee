//! What the program says of itself.

use crate::{exit_code::ExitCode, failure::Failure};

const HELP: &str = "\
pinrun runs containers as the OCI runtime specification has them.

USAGE:
   pinrun [global options] command [command options] [arguments...]

COMMANDS:
   checkpoint  save a running container's state with CRIU
   create      create a container; its program waits for start
   delete      take away what is left of a container
   events      show resource use (--stats) and OOM events
   exec        run a command in a running container
   features    show what this program supports, as JSON
   kill        send a signal to a container
   list        list containers
   pause       freeze a container
   ps          show the processes of a container
   restore     restore a container from a checkpoint
   resume      thaw a frozen container
   run         create and start a container
   spec        write a config.json to begin with
   start       start a created container
   state       show a container's state, as JSON
   update      change a container's limits

GLOBAL OPTIONS:
   --root DIRECTORY         states of containers (default: /run/pinrun)
   --log FILE            write errors and warnings there, too
   --log-format FORMAT   text (default) or json
   --debug               say more
   --systemd-cgroup      let systemd make groups; cgroupsPath is slice:prefix:name
   --cgroup-manager NAME cgroupfs (default), systemd, or disabled: the container has no cgroup
   --rootless MODE       true, false or auto (default)
   --help, -h            this text
   --version, -v         versions
";

/// `--help`
pub(crate) fn show() -> ExitCode {
    print!("{HELP}");
    ExitCode::SUCCESS
}

/// `COMMAND --help`
pub(crate) fn of_command(name: &str, options: &str) -> Failure {
    let line = HELP.lines().find(|line| line.split_whitespace().next() == Some(name)).unwrap_or(name).trim();
    let options = if options.is_empty() { String::new() } else { format!("\nOPTIONS:\n{options}") };
    Failure::help(format!("{line}\n\nUSAGE:\n   pinrun {name} [options] [arguments...]\n{options}"))
}

/// Of the sources, which scripts/build names.
const COMMIT: &str = match option_env!("PINION_COMMIT") {
    Some(commit) if !commit.is_empty() => commit,
    _ => "unknown",
};

/// `--version`, in the lines that containerd, Podman and Docker read.
pub(crate) fn version() -> ExitCode {
    println!("pinrun version {}\ncommit: {COMMIT}\nspec: 1.3.0", env!("CARGO_PKG_VERSION"));
    ExitCode::SUCCESS
}
