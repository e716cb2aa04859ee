//! Another program in the daemon's place, in the same process: its listening socket stays open, so that nobody who
//! connects meanwhile is refused.

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

use super::{handed, limits, source::Source};
use crate::Failure;

/// How long the new program may take to check the configuration.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a program ends with that does not know an argument (clap).
const WRONG_ARGUMENTS: i32 = 2;

/// What `pinion config check` says of a configuration that holds.
pub(crate) const VALID: &str = "valid";

/// The path of this program when it started: what is installed there later is its successor.
static INSTALLED: OnceLock<io::Result<PathBuf>> = OnceLock::new();

/// To be called at the start: a program that was replaced cannot be asked for its path.
pub(super) fn remember() {
    INSTALLED.get_or_init(env::current_exe);
}

fn installed() -> Result<PathBuf, String> {
    match INSTALLED.get_or_init(env::current_exe) {
        Ok(path) => Ok(path.clone()),
        Err(error) => Err(format!("find the installed program: {error}")),
    }
}

/// Whether the installed program starts, understands the configuration, reads every format that this daemon wrote, and
/// speaks to the monitor that runs.
pub(super) async fn check(source: &Source) -> Result<(), String> {
    ask(&installed()?, source.file.as_deref()).await
}

/// The next daemon opens the store in the data directory. On a disk that is read-only or hangs it could not start,
/// while this one serves everything that needs no disk.
pub(super) fn check_data_disk(disk: &pod::Condition) -> Result<(), String> {
    match disk.ready {
        true => Ok(()),
        false => Err(format!("the data disk is not ready: {}; this daemon goes on", disk.message)),
    }
}

/// An execve(2) waits for all threads of this process, and for the close of its pipes, also of those that a container
/// keeps locked inside the kernel.
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
             these containers (see the refused execs in the log); this daemon keeps running"
        )),
    }
}

/// A program that ends well and says something else is none of ours: executed, it would end in the daemon's place.
async fn ask(program: &Path, file: Option<&Path>) -> Result<(), String> {
    let mut command = tokio::process::Command::new(program);
    command.args(["config", "check"]).args(formats());
    command.args(file).stdin(Stdio::null()).kill_on_drop(true);
    let told = format!("check {}", program.display());
    match timeout(PATIENCE, command.output()).await {
        Ok(Ok(output)) if output.status.success() && output.stdout.trim_ascii() == VALID.as_bytes() => Ok(()),
        Ok(Ok(output)) if output.status.success() => Err(format!("{told}: it is no pinion; this daemon goes on")),
        Ok(Ok(output)) => {
            let said: String = String::from_utf8_lossy(&output.stderr).trim().chars().take(1000).collect();
            if output.status.code() == Some(WRONG_ARGUMENTS) {
                return Err(format!(
                    "{told}: it is too old to report which formats it reads ({}); this daemon goes on",
                    said.lines().next().unwrap_or_default()
                ));
            }
            let said = if said.is_empty() { said } else { format!(": {said}") };
            Err(format!("{told}: {}{said}; this daemon goes on", output.status))
        }
        Ok(Err(error)) => Err(format!("{told}: {error}; this daemon goes on")),
        Err(_) => Err(format!("{told}: no answer within {} s; this daemon goes on", PATIENCE.as_secs())),
    }
}

/// `--understands records=1 …`
fn formats() -> impl Iterator<Item = String> {
    pod::FORMATS.iter().flat_map(|format| ["--understands".to_owned(), format!("{}={}", format.name, format.version)])
}

/// Executes the installed program with this program's arguments. Returns only with the reason why not.
pub(super) fn become_installed(listener: &UnixListener) -> Failure {
    let program = match installed() {
        Ok(program) => program,
        Err(why) => return Failure::daemon(why),
    };
    limits::restore_open_files();
    if let Err(errno) = fcntl_setfd(listener.as_fd(), FdFlags::empty()) {
        return Failure::daemon(format!("leave the socket open for the next daemon: {errno}"));
    }
    let mut command = Command::new(&program);
    command.args(env::args_os().skip(1)).env(handed::OWN, format!("{}:{}", std::process::id(), listener.as_raw_fd()));
    let error = command.exec();
    Failure::daemon(format!("execute {}: {error}", program.display()))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    #[test]
    fn a_daemon_with_a_failed_data_disk_stays() {
        let disk = |ready| pod::Condition { ready, reason: String::new(), message: "write to /data: read-only".into() };
        assert_eq!(check_data_disk(&disk(true)), Ok(()));
        let refused = check_data_disk(&disk(false)).expect_err("refused");
        assert!(refused.contains("write to /data: read-only") && refused.ends_with("this daemon goes on"), "{refused}");
    }

    #[test]
    fn a_daemon_with_threads_that_cannot_end_stays() {
        assert_eq!(check_pipes(0, &[]), Ok(()));
        let refused = check_pipes(2, &[]).expect_err("refused");
        assert!(refused.starts_with("2 calls on pipes") && refused.ends_with("this daemon keeps running"), "{refused}");
        let holder = pod::PipeHolder {
            pid: rustix::process::getpid(),
            thread: 1,
            owner: "c0".into(),
            call: "275".into(),
            waits_in: "unix_stream_read_generic".into(),
        };
        let refused = check_pipes(0, &[holder]).expect_err("refused");
        assert!(refused.contains("of container c0 keeps a pipe locked"), "{refused}");
    }

    #[tokio::test]
    async fn what_is_no_daemon_is_not_given_way_to() {
        let dir = tempfile::tempdir().expect("a directory");
        let program = |name: &str, text: &str| {
            let path = dir.path().join(name);
            fs::write(&path, text).expect("written");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("executable");
            path
        };
        let asked = formats().collect::<Vec<_>>().join(" ");
        assert!(asked.contains("--understands records="), "{asked}");
        let good = format!("#!/bin/sh\n[ \"$*\" = 'config check {asked} /c.toml' ] && echo valid\n");
        ask(&program("good", &good), Some(Path::new("/c.toml"))).await.expect("taken");
        for (program, why) in [
            (PathBuf::from("/bin/true"), "it is no pinion"),
            (PathBuf::from("/bin/false"), "exit status: 1;"),
            (program("garbage", "garbage"), "Exec format error"),
            (
                program("older", "#!/bin/sh\necho 'unexpected argument' >&2; exit 2\n"),
                "too old to report which formats",
            ),
            (program("newer", "#!/bin/sh\necho speaks another contract >&2; exit 1\n"), ": speaks another contract;"),
            (dir.path().join("absent"), "No such file"),
        ] {
            let refused = ask(&program, None).await.expect_err("refused");
            assert!(refused.contains(why) && refused.ends_with("this daemon goes on"), "{refused}");
        }
    }
}
