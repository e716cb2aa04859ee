//! Executes the installed program in the process of the daemon. The listening socket stays open, so that connections
//! are not error in the meantime.

use std::{
    env, io,
    os::{
        fd::{AsFd, AsRawFd},
        unix::{net::UnixListener, process::CommandExt},
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
    time::Duration,
};

use rustix::io::{FdFlags, fcntl_setfd};
use tokio::time::timeout;

use super::{inherited, limits, source::Source};
use crate::Failure;

/// How long the new program may take to check the configuration.
const CHECK_TIMEOUT: Duration = Duration::from_secs(10);

/// Exit code of a program that does not know an argument (clap).
const USAGE_ERROR: i32 = 2;

/// Output of `pinion config check` for a valid configuration.
pub(crate) const VALID: &str = "valid";

/// The path of this program when it started. A program that is installed there later is the one to execute.
static INSTALLED: OnceLock<io::Result<PathBuf>> = OnceLock::new();

/// Records the path of this program. Must be called at the start, because the path of a replaced file cannot be read.
pub(super) fn remember() {
    INSTALLED.get_or_init(env::current_exe);
}

fn installed() -> Result<PathBuf, String> {
    match INSTALLED.get_or_init(env::current_exe) {
        Ok(path) => Ok(path.clone()),
        Err(error) => Err(format!("find the installed program: {error}")),
    }
}

/// Checks that the installed program starts, accepts the configuration, reads every format that this daemon wrote, and
/// is compatible with the running monitor.
pub(super) async fn check(source: &Source) -> Result<(), String> {
    check_program(&installed()?, source.file.as_deref()).await
}

/// Checks that the data disk is ready. The next daemon opens the image store at its start, and could not start on a
/// disk that is read-only or hangs; this daemon still serves all requests that do not need the disk.
pub(super) fn check_data_disk(disk: &pod::Condition) -> Result<(), String> {
    match disk.ready {
        true => Ok(()),
        false => Err(format!("the data disk is not ready: {}; this daemon keeps running", disk.message)),
    }
}

/// Checks that no container keeps a pipe of this process locked inside the kernel: execve(2) waits for all threads, and
/// for the close of all pipes.
pub(super) fn check_pipes(blocked: usize, holders: &[pod::PipeHolder]) -> Result<(), String> {
    if let Some(holder) = holders.first() {
        return Err(format!(
            "process {} of container {} keeps a pipe locked inside the kernel (splice(2)); end it or stop the container; this daemon \
             keeps running",
            holder.pid, holder.owner
        ));
    }
    match blocked {
        0 => Ok(()),
        _ => Err(format!(
            "{blocked} calls on pipes do not return: processes of containers keep them locked inside the kernel (splice(2)); stop \
             these containers (see the error execs in the log); this daemon keeps running"
        )),
    }
}

/// Runs `config check` of another program. A program that succeeds with different output is not pinion, and would exit
/// after it replaced the daemon.
async fn check_program(program: &Path, file: Option<&Path>) -> Result<(), String> {
    let mut command = tokio::process::Command::new(program);
    command.args(["config", "check"]).args(formats());
    command.args(file).stdin(Stdio::null()).kill_on_drop(true);
    let operation = format!("check {}", program.display());
    match timeout(CHECK_TIMEOUT, command.output()).await {
        Ok(Ok(output)) if output.status.success() && output.stdout.trim_ascii() == VALID.as_bytes() => Ok(()),
        Ok(Ok(output)) if output.status.success() => {
            Err(format!("{operation}: the program is not pinion; this daemon keeps running"))
        }
        Ok(Ok(output)) => {
            let message: String = String::from_utf8_lossy(&output.stderr).trim().chars().take(1000).collect();
            if output.status.code() == Some(USAGE_ERROR) {
                return Err(format!(
                    "{operation}: it is too old to report which formats it reads ({}); this daemon keeps running",
                    message.lines().next().unwrap_or_default()
                ));
            }
            let message = if message.is_empty() { message } else { format!(": {message}") };
            Err(format!("{operation}: {}{message}; this daemon keeps running", output.status))
        }
        Ok(Err(error)) => Err(format!("{operation}: {error}; this daemon keeps running")),
        Err(_) => Err(format!("{operation}: timed out after {} s; this daemon keeps running", CHECK_TIMEOUT.as_secs())),
    }
}

/// Returns the arguments `--understands records=1 …`.
fn formats() -> impl Iterator<Item = String> {
    pod::FORMATS.iter().flat_map(|format| ["--understands".to_owned(), format!("{}={}", format.name, format.version)])
}

/// Executes the installed program with the arguments of this one. Returns only on failure.
pub(super) fn execute_installed(listener: &UnixListener) -> Failure {
    let program = match installed() {
        Ok(program) => program,
        Err(error) => return Failure::daemon(error),
    };
    limits::restore_open_files();
    if let Err(errno) = fcntl_setfd(listener.as_fd(), FdFlags::empty()) {
        return Failure::daemon(format!("keep the socket open for the next daemon: {errno}"));
    }
    let mut command = Command::new(&program);
    command
        .args(env::args_os().skip(1))
        .env(inherited::LISTENER, format!("{}:{}", std::process::id(), listener.as_raw_fd()));
    let error = command.exec();
    Failure::daemon(format!("execute {}: {error}", program.display()))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    #[test]
    fn a_daemon_with_a_failed_data_disk_is_not_replaced() {
        let disk = |ready| pod::Condition { ready, reason: String::new(), message: "write to /data: read-only".into() };
        assert_eq!(check_data_disk(&disk(true)), Ok(()));
        let error = check_data_disk(&disk(false)).expect_err("refused");
        assert!(error.contains("write to /data: read-only") && error.ends_with("this daemon keeps running"), "{error}");
    }

    #[test]
    fn a_daemon_with_blocked_threads_is_not_replaced() {
        assert_eq!(check_pipes(0, &[]), Ok(()));
        let error = check_pipes(2, &[]).expect_err("refused");
        assert!(error.starts_with("2 calls on pipes") && error.ends_with("this daemon keeps running"), "{error}");
        let holder = pod::PipeHolder {
            pid: rustix::process::getpid(),
            thread: 1,
            owner: "c0".into(),
            call: "275".into(),
            waits_in: "unix_stream_read_generic".into(),
        };
        let error = check_pipes(0, &[holder]).expect_err("refused");
        assert!(error.contains("of container c0 keeps a pipe locked"), "{error}");
    }

    #[tokio::test]
    async fn a_program_that_fails_the_check_is_not_executed() {
        let dir = tempfile::tempdir().expect("a directory");
        let program = |name: &str, text: &str| {
            let path = dir.path().join(name);
            fs::write(&path, text).expect("written");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("executable");
            path
        };
        let options = formats().collect::<Vec<_>>().join(" ");
        assert!(options.contains("--understands records="), "{options}");
        let good = format!("#!/bin/sh\n[ \"$*\" = 'config check {options} /c.toml' ] && echo valid\n");
        check_program(&program("good", &good), Some(Path::new("/c.toml"))).await.expect("accepted");
        for (program, cause) in [
            (PathBuf::from("/bin/true"), "the program is not pinion"),
            (PathBuf::from("/bin/false"), "exit status: 1;"),
            (program("garbage", "garbage"), "Exec format error"),
            (
                program("older", "#!/bin/sh\necho 'unexpected argument' >&2; exit 2\n"),
                "too old to report which formats",
            ),
            (program("newer", "#!/bin/sh\necho speaks another contract >&2; exit 1\n"), ": speaks another contract;"),
            (dir.path().join("absent"), "No such file"),
        ] {
            let error = check_program(&program, None).await.expect_err("refused");
            assert!(error.contains(cause) && error.ends_with("this daemon keeps running"), "{error}");
        }
    }
}
