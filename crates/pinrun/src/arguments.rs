//! Global options, which precede the command name.

use std::{ffi::OsString, path::PathBuf};

use crate::{
    failure::Failure,
    flags::{Flag, Flags, Order, switch, value},
};

/// The format of log lines (`--log-format`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LogFormat {
    /// logfmt, in the form that logrus writes.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// Whether the caller is treated as an unprivileged user (`--rootless`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Rootless {
    /// Determined from the caller's privileges.
    #[default]
    Auto,
    Yes,
    No,
}

/// The values of the global options.
#[derive(Clone, Debug, Default)]
pub(crate) struct Global {
    /// The directory that holds the state directories of all containers.
    pub(crate) root: PathBuf,
    /// The log file, which gets errors and warnings.
    pub(crate) log: Option<PathBuf>,
    pub(crate) log_format: LogFormat,
    pub(crate) debug: bool,
    pub(crate) systemd_cgroup: bool,
    /// Whether the container stays in the caller's cgroups.
    pub(crate) no_cgroup: bool,
    pub(crate) rootless: Rootless,
}

/// The action that the command line requests.
pub(crate) enum Action {
    /// A command's name and its arguments.
    Command(String, Vec<OsString>),
    Help,
    Version,
}

const KNOWN: [Flag; 10] = [
    value(&["root"]),
    value(&["log"]),
    value(&["log-format"]),
    switch(&["debug"]),
    switch(&["systemd-cgroup"]),
    // An option of crun, which Podman passes for --cgroups=disabled.
    value(&["cgroup-manager"]),
    value(&["rootless"]),
    // Passed by older callers and ignored.
    value(&["criu"]),
    switch(&["help", "h"]),
    switch(&["version", "v"]),
];

/// Parses the global options and the action. The options are returned with an error, too: they say where to log it.
pub(crate) fn parse(arguments: impl IntoIterator<Item = OsString>) -> (Global, Result<Action, Failure>) {
    let mut global = Global::default();
    let action = Flags::parse(arguments, &KNOWN, Order::Strict).and_then(|flags| read(flags, &mut global));
    (global, action)
}

fn read(flags: Flags, global: &mut Global) -> Result<Action, Failure> {
    global.log_format = match flags.text("log-format")? {
        None | Some("text" | "") => LogFormat::Text,
        Some("json") => LogFormat::Json,
        Some(other) => return Err(Failure::usage(format!("invalid log-format {other:?}: text or json"))),
    };
    global.log = flags.value("log").filter(|path| !path.is_empty()).map(PathBuf::from);
    global.root = flags.value("root").filter(|path| !path.is_empty()).map_or_else(default_root, PathBuf::from);
    global.debug = flags.is_on("debug")?;
    (global.systemd_cgroup, global.no_cgroup) = match flags.text("cgroup-manager")? {
        None | Some("") => (flags.is_on("systemd-cgroup")?, false),
        Some("cgroupfs") => (false, false),
        Some("systemd") => (true, false),
        Some("disabled") => (false, true),
        Some(other) => {
            return Err(Failure::usage(format!("invalid cgroup-manager {other:?}: cgroupfs, systemd or disabled")));
        }
    };
    global.rootless = match flags.text("rootless")? {
        None | Some("auto" | "") => Rootless::Auto,
        Some("true") => Rootless::Yes,
        Some("false") => Rootless::No,
        Some(other) => return Err(Failure::usage(format!("invalid rootless {other:?}: true, false or auto"))),
    };
    if flags.is_on("version")? {
        return Ok(Action::Version);
    }
    let help = flags.is_on("help")?;
    let mut words = flags.words.into_iter();
    match words.next() {
        Some(name) if !help && name != "help" => {
            Ok(Action::Command(name.to_string_lossy().into_owned(), words.collect()))
        }
        _ => Ok(Action::Help),
    }
}

/// Returns `/run/pinrun`; for an unprivileged user, and for root of a user namespace other than the initial one,
/// `$XDG_RUNTIME_DIR/pinrun`. Both are on tmpfs.
fn default_root() -> PathBuf {
    match std::env::var_os("XDG_RUNTIME_DIR").filter(|path| !path.is_empty()) {
        Some(directory) if !is_host_root() => PathBuf::from(directory).join("pinrun"),
        _ => PathBuf::from("/run/pinrun"),
    }
}

/// Reports whether this process is root in the initial user namespace, in which every id is mapped to itself.
fn is_host_root() -> bool {
    rustix::process::geteuid().is_root()
        && syscall::proc_file::read("/proc/self/uid_map")
            .is_ok_and(|map| map.split_whitespace().eq(["0", "0", "4294967295"]))
}
