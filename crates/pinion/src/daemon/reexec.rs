//! Another program in the daemon's place, in the same process: its listening socket stays open, so that nobody who connects
//! meanwhile is refused.

use std::{
    env, io,
    os::{
        fd::{AsFd, AsRawFd},
        unix::{net::UnixListener, process::CommandExt},
    },
    path::PathBuf,
    process::Command,
    sync::OnceLock,
    time::Duration,
};

use rustix::io::{FdFlags, fcntl_setfd};
use tokio::time::timeout;

use super::{handed, limits, source::Source};
use crate::Failure;

/// How long the new program may take to check the configuration.
const PATIENCE: Duration = Duration::from_secs(10);

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

/// Whether the installed program starts and understands the configuration.
pub(super) async fn check(source: &Source) -> Result<(), String> {
    let program = installed()?;
    let mut command = tokio::process::Command::new(&program);
    command.args(["config", "check"]).args(&source.file).kill_on_drop(true);
    let told = format!("check {}", program.display());
    match timeout(PATIENCE, command.output()).await {
        Ok(Ok(output)) if output.status.success() => Ok(()),
        Ok(Ok(output)) => {
            let said: String = String::from_utf8_lossy(&output.stderr).trim().chars().take(1000).collect();
            Err(format!("{told}: {}: {said}; this daemon goes on", output.status))
        }
        Ok(Err(error)) => Err(format!("{told}: {error}; this daemon goes on")),
        Err(_) => Err(format!("{told}: no answer within {} s; this daemon goes on", PATIENCE.as_secs())),
    }
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
