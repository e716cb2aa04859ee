//! The command line of OCI runtimes, which is that of runc.

use std::{ffi::CString, io};

use monitor_api::OciRuntime;
use rustix::fd::RawFd;
use syscall::exec::StringArray;

/// File in the bundle to which `create` writes the pid of the container.
pub(super) const PID_FILE: &str = "pid";
/// Socket in the bundle to which `create` sends the terminal of the container.
const CONSOLE_SOCKET: &str = "console";

/// A command of an OCI runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    /// `create`, with or without a terminal.
    Create {
        /// Whether the runtime sends the terminal to the socket in the bundle.
        terminal: bool,
    },
    /// `start`.
    Start,
    /// `delete`.
    Delete {
        /// Whether processes of the container may be left, which the runtime kills (`--force`). runc, since 1.2, then
        /// sleeps for 0.1 s even if there are none.
        force: bool,
    },
    /// None of an OCI runtime: the command is complete.
    Plain,
}

impl Verb {
    /// Returns its name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Create { .. } => "create",
            Self::Start => "start",
            Self::Delete { .. } => "delete",
            Self::Plain => "run",
        }
    }
}

/// Returns the arguments of a command, the program first. `log` is the number of the log's descriptor in the runtime.
pub(super) fn arguments(runtime: &OciRuntime, verb: Verb, container: &str, log: RawFd) -> io::Result<StringArray> {
    let bundle = &runtime.bundle;
    let mut words = runtime.arguments.clone();
    words.extend(["--log".into(), format!("/proc/self/fd/{log}"), "--log-format".into(), "json".into()]);
    words.push(verb.name().to_owned());
    match verb {
        Verb::Create { terminal } => {
            words.extend(["--bundle".into(), bundle.clone(), "--pid-file".into(), format!("{bundle}/{PID_FILE}")]);
            if terminal {
                words.extend(["--console-socket".into(), format!("{bundle}/{CONSOLE_SOCKET}")]);
            }
        }
        Verb::Delete { force: true } => words.push("--force".into()),
        Verb::Start | Verb::Delete { force: false } | Verb::Plain => {}
    }
    words.push(container.to_owned());
    strings(&words)
}

/// Converts words for execve(2).
pub(super) fn strings(words: &[String]) -> io::Result<StringArray> {
    let words: Result<Vec<CString>, _> = words.iter().map(|word| CString::new(word.as_str())).collect();
    Ok(StringArray::new(words.map_err(|_| io::Error::other("an argument of the runtime contains a NUL byte"))?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_those_of_runc() {
        let runtime = OciRuntime {
            arguments: ["/usr/bin/crun", "--root", "/run/crun"].map(str::to_owned).into(),
            bundle: "/run/b".into(),
            ..OciRuntime::default()
        };
        let line = |verb| {
            let arguments = arguments(&runtime, verb, "web", 7).expect("no NUL bytes");
            let words = arguments.strings().iter().map(|word| word.to_string_lossy().into_owned());
            words.collect::<Vec<_>>().join(" ")
        };
        const GLOBAL: &str = "/usr/bin/crun --root /run/crun --log /proc/self/fd/7 --log-format json";
        assert_eq!(line(Verb::Start), format!("{GLOBAL} start web"));
        assert_eq!(line(Verb::Delete { force: false }), format!("{GLOBAL} delete web"));
        assert_eq!(line(Verb::Delete { force: true }), format!("{GLOBAL} delete --force web"));
        let create = format!("{GLOBAL} create --bundle /run/b --pid-file /run/b/pid");
        assert_eq!(line(Verb::Create { terminal: false }), format!("{create} web"));
        let console = "--console-socket /run/b/console";
        assert_eq!(line(Verb::Create { terminal: true }), format!("{create} {console} web"));
    }
}
