//! Global options, before the command's name.

use std::{ffi::OsString, path::PathBuf};

use crate::{
    failure::Failure,
    flags::{Flag, Flags, Order, switch, value},
};

/// How errors are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LogFormat {
    /// logfmt, as logrus writes it.
    #[default]
    Text,
    /// A JSON object a line.
    Json,
}

/// Whether the calling user is treated as one without privileges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Rootless {
    /// As the kernel says.
    #[default]
    Auto,
    Yes,
    No,
}

/// What stands before the command's name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Global {
    /// Directory of all containers' states.
    pub(crate) root: PathBuf,
    /// Where errors and warnings go beside standard error.
    pub(crate) log: Option<PathBuf>,
    pub(crate) log_format: LogFormat,
    pub(crate) debug: bool,
    pub(crate) systemd_cgroup: bool,
    /// The container stays in the caller's groups.
    pub(crate) no_cgroup: bool,
    pub(crate) rootless: Rootless,
}

/// What to do.
pub(crate) enum Wanted {
    /// A command, by its name, with its arguments.
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
    // crun's, which Podman gives for --cgroups=disabled.
    value(&["cgroup-manager"]),
    value(&["rootless"]),
    // What older callers give.
    value(&["criu"]),
    switch(&["help", "h"]),
    switch(&["version", "v"]),
];

/// The global options and what to do. The options are given back with an error, too: they say where to write it.
pub(crate) fn parse(arguments: impl IntoIterator<Item = OsString>) -> (Global, Result<Wanted, Failure>) {
    let mut global = Global::default();
    let wanted = Flags::parse(arguments, &KNOWN, Order::Strict).and_then(|flags| read(flags, &mut global));
    (global, wanted)
}

fn read(flags: Flags, global: &mut Global) -> Result<Wanted, Failure> {
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
        return Ok(Wanted::Version);
    }
    let help = flags.is_on("help")?;
    let mut words = flags.words.into_iter();
    match words.next() {
        Some(name) if !help && name != "help" => {
            Ok(Wanted::Command(name.to_string_lossy().into_owned(), words.collect()))
        }
        _ => Ok(Wanted::Help),
    }
}

/// On tmpfs; of an ordinary user, and of one who is root in a user namespace only, in the directory that the user's
/// session has there.
fn default_root() -> PathBuf {
    match std::env::var_os("XDG_RUNTIME_DIR").filter(|path| !path.is_empty()) {
        Some(directory) if !is_machine_root() => PathBuf::from(directory).join("pinrun"),
        _ => PathBuf::from("/run/pinrun"),
    }
}

/// In the first user namespace every id is mapped upon itself.
fn is_machine_root() -> bool {
    rustix::process::geteuid().is_root()
        && syscall::proc_file::read("/proc/self/uid_map")
            .is_ok_and(|map| map.split_whitespace().eq(["0", "0", "4294967295"]))
}
