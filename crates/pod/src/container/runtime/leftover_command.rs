//! Commands of OCI runtimes that outlived their monitor.
//!
//! A `create` or `delete` is killed with its monitor, but not what a wrapper has started, and a `start` runs to its
//! end. All processes of a command hold a lock on a file in the bundle and are in one session, whose id is in the file
//! ([`COMMAND_LOCK`]).

use std::{
    fs,
    io::Read,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use monitor_api::COMMAND_LOCK;
use rustix::{
    fd::OwnedFd,
    fs::{FlockOperation, Mode, OFlags, flock, open},
    process::{Signal, pidfd_send_signal},
};

use crate::process::{find, has_ended, stat};

/// How long killed processes are waited for.
const KILLED: Duration = Duration::from_secs(5);
/// Pause between two checks.
const PAUSE: Duration = Duration::from_millis(5);
/// Maximum number of bytes of the file.
const FILE_MAX: u64 = 32;

/// Waits until no command runs for a container with this bundle. Kills its processes after `patience`. Blocks.
///
/// The init process of a container that is not started may hold the lock, too. It has a session of its own.
pub(crate) fn end(bundle: &Path, patience: Duration) {
    let path = bundle.join(COMMAND_LOCK);
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(file) = open(&path, flags, Mode::empty()) else { return };
    let mut text = String::new();
    let (start, mut killed) = (Instant::now(), None);
    while flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        if text.is_empty() && file_text(&path, &mut text).is_none() {
            return;
        }
        let Some(session) = text.trim().parse().ok().filter(|session| *session > 0) else { return };
        let processes = processes_of(session);
        if processes.is_empty() || killed.is_some_and(|at: Instant| at.elapsed() > KILLED) {
            return;
        }
        if start.elapsed() >= patience {
            killed.get_or_insert_with(Instant::now);
            for process in &processes {
                let _ = pidfd_send_signal(process, Signal::KILL);
            }
        }
        thread::sleep(PAUSE);
    }
}

fn file_text(path: &Path, text: &mut String) -> Option<usize> {
    fs::File::open(path).ok()?.take(FILE_MAX).read_to_string(text).ok()
}

/// Returns the processes of a session that have not exited.
fn processes_of(session: i32) -> Vec<OwnedFd> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let stat_of = |pid: u32| stat(pid).ok().flatten().filter(|stat| stat.session == session);
    let pidfds = pids.filter_map(|pid| find(pid, stat_of(pid)?.start_time));
    pidfds.filter(|pidfd| !has_ended(pidfd)).collect()
}

#[cfg(test)]
mod tests {
    use std::{os::unix::process::CommandExt, process::Command};

    use super::*;

    /// Starts a wrapper in a session of its own whose child holds the lock and lives for some time after the wrapper.
    fn wrapper(bundle: &Path, seconds: &str) {
        let script = format!(
            "exec 9>{path}; echo $$ >&9; flock 9; sleep {seconds} & exit",
            path = bundle.join(COMMAND_LOCK).display()
        );
        let mut command = Command::new("setsid");
        let status = command.args(["--wait", "sh", "-c", &script]).process_group(0).status();
        assert!(status.expect("setsid runs").success());
    }

    #[test]
    fn a_command_is_waited_for_and_one_that_does_not_end_is_killed() {
        let bundle = tempfile::tempdir().expect("a bundle");
        end(bundle.path(), Duration::ZERO);
        wrapper(bundle.path(), "0.3");
        let start = Instant::now();
        end(bundle.path(), Duration::from_secs(20));
        assert!((200..10_000).contains(&start.elapsed().as_millis()), "it waited: {:?}", start.elapsed());
        wrapper(bundle.path(), "8005");
        end(bundle.path(), Duration::ZERO);
        let file = fs::File::open(bundle.path().join(COMMAND_LOCK)).expect("the file");
        assert_eq!(flock(&file, FlockOperation::NonBlockingLockExclusive), Ok(()), "no process has the lock");
    }
}
