//! Commands of OCI runtimes that create, start and delete containers in place of the monitor.
//!
//! A runtime is a program of the node, and may hang. So each command is a child with a deadline, and its end is a state
//! change of the container like any other. The container that it leaves behind becomes a child of the monitor, which is
//! a subreaper: neither the runtime nor any other process stays as its parent.
//!
//! ```text
//!  Create ─▶ create ──exit 0: pid file──▶ Created ──Start──▶ start ──exit 0──▶ Running ─▶ … ─▶ Exited ──Delete──▶ delete
//!              │ failed, or timed out                          │ failed: request answered             failed: delete --force
//!              └──▶ delete --force ──▶ cgroup removed,         └─▶ its process is killed by the daemon          ▼
//!                                      request answered                                    cgroup removed, request answered
//! ```
//!
//! `create` runs in a mount namespace of its own, a copy of the node's, with the root file system and the volumes of the
//! container mounted in its bundle (`oci_runtime/process.rs`). These mounts end with the command, except in the mount
//! namespace of the container, so that nothing is ever mounted on the node.

mod command_line;
mod command_output;
mod console;
mod error_log;
mod process;

use std::{collections::BTreeMap, time::Duration};

use monitor_api::{Attachments, Failure, OciRuntime, Role, RuntimeCommand as PlainCommand};
use oci::NamespaceType;
use rustix::{
    fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd},
    fs::{Mode, OFlags, openat},
    process::{Pid, Signal, kill_process_group, pidfd_send_signal},
};
use syscall::{clone::Child, exec::StringArray};

pub(crate) use command_line::Verb;
pub(crate) use console::receive_terminal;
pub(crate) use process::ProcessLimits;

use crate::{
    clock,
    event::{Timer, Timers},
    failure::system,
    link::RequestId,
    process::ProcessExit,
    services::Services,
};
use command_output::CommandOutput;
use error_log::{ErrorLog, ErrorLogs, error_in};
use process::Launch;

/// Time limit in seconds of a command if the request does not set one.
const TIMEOUT_DEFAULT: u32 = 120;
/// Time after which the request is answered although the killed command was not reaped.
const ANSWER_AFTER: Duration = Duration::from_secs(2);
/// Maximum number of bytes of a pid file.
const PID_FILE_MAX: usize = 32;

/// What the end of a command concerns.
pub(crate) enum Purpose {
    /// A container.
    Container {
        /// Its serial number.
        serial: u64,
        /// The request to be answered.
        request_id: Option<RequestId>,
    },
    /// Only this request: the monitor does not know the container.
    Request(RequestId),
}

/// A command that is running.
struct RuntimeCommand {
    verb: Verb,
    /// `None` after it was given up.
    purpose: Option<Purpose>,
    /// The operation and its object, for messages.
    operation: String,
    process: Child,
    log: Log,
    files: CommandFiles,
    /// Moment of [`clock::monotonic`] at which it is killed.
    deadline: Duration,
    timed_out: bool,
}

/// Files with which `create` returns its results.
#[derive(Default)]
pub(crate) struct CommandFiles {
    /// The bundle directory.
    pub(crate) bundle: Option<OwnedFd>,
    /// Listening socket that receives the terminal, if the container has one.
    pub(crate) console_socket: Option<OwnedFd>,
}

/// A command that has ended.
pub(crate) struct CommandEnd {
    pub(crate) verb: Verb,
    pub(crate) purpose: Purpose,
    pub(crate) files: CommandFiles,
    /// Its standard output, if that is the result; or the error that the runtime reported.
    pub(crate) result: Result<Vec<u8>, Failure>,
}

/// What a command writes.
enum Log {
    /// The log of an OCI runtime, with its standard output and error.
    Oci(ErrorLog),
    /// Standard output and standard error.
    Plain(CommandOutput, CommandOutput),
}

/// What a command executes.
#[derive(Clone, Copy)]
pub(crate) enum CommandProgram<'a> {
    /// A verb of an OCI runtime.
    Oci(&'a OciRuntime),
    /// A program with all of its arguments.
    Plain(&'a PlainCommand),
}

/// Commands of OCI runtimes.
#[derive(Default)]
pub(crate) struct RuntimeCommands {
    /// Those that are running, by serial number.
    running: BTreeMap<u64, RuntimeCommand>,
    logs: ErrorLogs,
}

/// A command to run.
pub(crate) struct NewCommand<'a> {
    pub(crate) verb: Verb,
    /// Container id.
    pub(crate) container: &'a str,
    pub(crate) program: CommandProgram<'a>,
    pub(crate) purpose: Purpose,
    /// Stdio, mounts, namespaces and bundle, for `create`; stdin and mount namespace, for [`Verb::Plain`].
    pub(crate) attachments: Attachments,
    pub(crate) limits: ProcessLimits,
}

impl RuntimeCommands {
    pub(crate) fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    /// Starts a command in the mount namespace of the node.
    pub(crate) fn run(
        &mut self,
        command: NewCommand<'_>,
        node_mounts: Option<BorrowedFd<'_>>,
        services: &mut Services,
    ) -> Result<(), Failure> {
        let NewCommand { verb, container, program, purpose, mut attachments, limits } = command;
        let operation = program.operation(verb, container);
        let own_mounts = attachments.take(Role::Namespace(NamespaceType::Mount));
        let mounts = own_mounts
            .as_ref()
            .map(AsFd::as_fd)
            .or(node_mounts)
            .ok_or_else(|| system(&operation, "this monitor has no mount namespace of the node; restart it"))?;
        let failed = |error: std::io::Error| system(&operation, error);
        let files = CommandFiles {
            bundle: attachments.take(Role::Bundle),
            console_socket: attachments.take(Role::ConsoleSocket),
        };
        let log = program.log(&mut self.logs).map_err(failed)?;
        let (output, error) = log.files();
        let arguments = program.arguments(verb, container, error.as_raw_fd()).map_err(failed)?;
        let (environment, bundle, directory) = match program {
            CommandProgram::Oci(runtime) => (&runtime.environment, runtime.bundle.as_str(), None),
            CommandProgram::Plain(plain) => (&plain.environment, "", Some(plain.directory.as_str())),
        };
        let launch =
            Launch { verb, arguments, environment, bundle, directory, attachments, output, log: error, mounts, limits };
        let process = launch.clone().map_err(failed)?;
        services.closers.cloned();
        let deadline = clock::monotonic() + Duration::from_secs(program.timeout().into());
        let serial = services.next_serial();
        services.timers.at(deadline, Timer::Runtime(serial));
        let purpose = Some(purpose);
        let command = RuntimeCommand { verb, purpose, operation, process, log, files, deadline, timed_out: false };
        self.running.insert(serial, command);
        Ok(())
    }

    /// Handles the deadline of a command: kills it. Its end is handled when it is reaped, or [`ANSWER_AFTER`], because
    /// it may hang in the kernel. Its record is kept until it is reaped.
    pub(crate) fn due(&mut self, serial: u64, timers: &mut Timers) -> Option<CommandEnd> {
        let command = self.running.get_mut(&serial)?;
        if std::mem::replace(&mut command.timed_out, true) {
            return command.give_up();
        }
        command.kill();
        command.deadline = clock::monotonic() + ANSWER_AFTER;
        timers.at(command.deadline, Timer::Runtime(serial));
        None
    }

    /// Kills a `create` or `start` that runs for a container.
    pub(crate) fn cancel(&self, container: u64) {
        for command in self.running.values().filter(|command| !matches!(command.verb, Verb::Delete { .. })) {
            if matches!(command.purpose, Some(Purpose::Container { serial, .. }) if serial == container) {
                command.kill();
            }
        }
    }

    /// Handles a reaped child that may be a command. Returns the command's end.
    pub(crate) fn reaped(&mut self, pid: i32, exit: ProcessExit, timers: &mut Timers) -> Option<CommandEnd> {
        let has_pid = |command: &RuntimeCommand| command.process.pid.as_raw_pid() == pid;
        let serial = self.running.iter().find(|(_, command)| has_pid(command)).map(|(serial, _)| *serial)?;
        let command = self.running.remove(&serial)?;
        timers.cancel(command.deadline, Timer::Runtime(serial));
        command.end(exit)
    }
}

impl RuntimeCommand {
    /// Kills it and what it started in its process group.
    fn kill(&self) {
        let _ = kill_process_group(self.process.pid, Signal::KILL);
        let _ = pidfd_send_signal(&self.process.pidfd, Signal::KILL);
    }

    /// Returns the end of a killed command that was not reaped in time.
    fn give_up(&mut self) -> Option<CommandEnd> {
        let purpose = self.purpose.take()?;
        let cause = "timed out and was killed, but does not exit; see /proc/<pid>/stack for what it waits for";
        Some(CommandEnd {
            verb: self.verb,
            purpose,
            files: std::mem::take(&mut self.files),
            result: Err(system(&self.operation, cause)),
        })
    }

    /// Returns its end after it was reaped; `None` if it was given up before.
    fn end(self, exit: ProcessExit) -> Option<CommandEnd> {
        let Self { verb, operation, purpose, log, files, timed_out, .. } = self;
        let result = match exit.code {
            Some(0) if !timed_out => Ok(log.output()),
            _ => {
                let reported = log.error();
                let cause = match (timed_out, exit.code, exit.signal) {
                    (true, ..) => Some("timed out and was killed; is the runtime waiting for something?".to_owned()),
                    (_, _, Some(signal)) => Some(format!("the runtime was killed by signal {signal}")),
                    (_, Some(code), _) if reported.is_none() => Some(format!("the runtime exited with code {code}")),
                    _ => None,
                };
                let texts: Vec<String> = [cause, reported].into_iter().flatten().collect();
                Err(system(operation, texts.join(": ")))
            }
        };
        Some(CommandEnd { verb, purpose: purpose?, files, result })
    }
}

impl Log {
    /// Returns the files for standard output and standard error.
    fn files(&self) -> (BorrowedFd<'_>, BorrowedFd<'_>) {
        match self {
            Self::Oci(log) => (log.file(), log.file()),
            Self::Plain(output, error) => (output.file(), error.file()),
        }
    }

    /// Returns the standard output, if that is the result of the command.
    fn output(self) -> Vec<u8> {
        match self {
            Self::Oci(_) => Vec::new(),
            Self::Plain(output, _) => output.into_bytes(),
        }
    }

    /// Returns the error that the runtime reported. `None` if it reported none.
    fn error(self) -> Option<String> {
        match self {
            Self::Oci(log) => log.error(),
            // containerd's shims write errors to both.
            Self::Plain(output, error) => {
                let text = |file: CommandOutput| error_in(&String::from_utf8_lossy(&file.into_bytes()));
                text(error).or_else(|| text(output))
            }
        }
    }
}

impl CommandProgram<'_> {
    /// Returns the operation and its object, for messages.
    fn operation(self, verb: Verb, container: &str) -> String {
        match self {
            Self::Oci(_) => format!("{} container {container}", verb.name()),
            Self::Plain(plain) => plain.operation.clone(),
        }
    }

    fn log(self, logs: &mut ErrorLogs) -> std::io::Result<Log> {
        match self {
            Self::Oci(_) => logs.create().map(Log::Oci),
            Self::Plain(_) => Ok(Log::Plain(CommandOutput::create()?, CommandOutput::create()?)),
        }
    }

    fn arguments(self, verb: Verb, container: &str, log: RawFd) -> std::io::Result<StringArray> {
        match self {
            Self::Oci(runtime) => command_line::arguments(runtime, verb, container, log),
            Self::Plain(plain) => command_line::strings(&plain.arguments),
        }
    }

    fn timeout(self) -> u32 {
        let seconds = match self {
            Self::Oci(runtime) => runtime.timeout,
            Self::Plain(plain) => plain.timeout,
        };
        if seconds == 0 { TIMEOUT_DEFAULT } else { seconds }
    }
}

/// Reads the pid that `create` wrote to the bundle.
pub(crate) fn read_pid(bundle: &OwnedFd) -> std::io::Result<Pid> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = openat(bundle, command_line::PID_FILE, flags, Mode::empty())?;
    let mut buffer = [0; PID_FILE_MAX];
    let length = rustix::io::read(&file, &mut buffer)?;
    let text = String::from_utf8_lossy(&buffer[..length]);
    let pid = text.trim().parse().ok().filter(|pid| *pid > 1).and_then(Pid::from_raw);
    pid.ok_or_else(|| std::io::Error::other(format!("the runtime wrote {text:?} to its pid file, which is not a pid")))
}
