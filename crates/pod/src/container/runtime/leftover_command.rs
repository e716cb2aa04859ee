//! Commands of OCI runtimes that outlived their monitor.
//!
//! A `create` or `delete` is killed with its monitor, but not what a wrapper has started, and a `start` runs to its
//! end. All processes of a command hold a lock on a file of this command in the bundle and are in one session. The file
//! contains the pid of its leader, which is its id, and the start time of the leader ([`CREATE_LOCK`]).

use std::{
    fs::{self, File},
    os::unix::fs::FileExt,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use monitor_api::{CREATE_LOCK, DELETE_LOCK, START_LOCK};
use rustix::{
    fd::OwnedFd,
    fs::{FlockOperation, Mode, OFlags, flock, fstat, open},
    process::{Signal, pidfd_send_signal},
};
use syscall::process_stat::ProcessStat;

use crate::process::{find, has_ended, stat};

/// How long killed processes are waited for.
const KILLED: Duration = Duration::from_secs(5);
/// Pause between two checks.
const PAUSE: Duration = Duration::from_millis(5);
/// Maximum number of bytes of the file.
const FILE_MAX: usize = 64;

/// Waits until no command runs for a container with this bundle. Kills the processes of each after `patience`. Blocks.
pub(crate) fn end(bundle: &Path, patience: Duration) {
    for name in [CREATE_LOCK, START_LOCK, DELETE_LOCK] {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        if let Ok(file) = open(bundle.join(name), flags, Mode::empty()) {
            end_one(&file.into(), patience);
        }
    }
}

/// Waits for the command whose processes lock this file.
///
/// The init process of a container that is not started may hold the lock, too. It has a session of its own.
fn end_one(file: &File, patience: Duration) {
    let mut text = String::new();
    let (start, mut killed) = (Instant::now(), None);
    while flock(file, FlockOperation::NonBlockingLockExclusive).is_err() {
        if text.is_empty() {
            text = file_text(file).unwrap_or_default();
        }
        let Some(leader) = Leader::parse(&text) else { return };
        let processes = processes_of(leader, file);
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

fn file_text(file: &File) -> Option<String> {
    let mut text = [0; FILE_MAX];
    let length = file.read_at(&mut text, 0).ok()?;
    String::from_utf8(text[..length].to_vec()).ok()
}

/// The leader of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Leader {
    pid: i32,
    /// In clock ticks since boot; `None` if an earlier monitor wrote the file.
    start_time: Option<u64>,
}

impl Leader {
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_whitespace();
        let pid = words.next()?.parse().ok().filter(|pid| *pid > 0)?;
        Some(Self { pid, start_time: words.next().and_then(|word| word.parse().ok()) })
    }

    /// Whether this is the leader, and not a process that got its pid later.
    fn is(self, stat: &ProcessStat) -> bool {
        self.start_time.is_some_and(|start_time| stat.start_time == start_time)
    }
}

/// Returns the processes of a command that have not exited. After the end of the leader, another session may have its
/// pid as id: then only those are returned that have the locked file open.
fn processes_of(leader: Leader, lock: &File) -> Vec<OwnedFd> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let in_session = pids.filter_map(|pid| {
        let stat = stat(pid).ok().flatten().filter(|stat| stat.session == leader.pid)?;
        Some((pid, stat))
    });
    let members: Vec<(u32, ProcessStat)> = in_session.collect();
    let is_leader = |(pid, stat): &(u32, ProcessStat)| i32::try_from(*pid) == Ok(leader.pid) && leader.is(stat);
    let has_leader = members.iter().any(is_leader);
    let mut pidfds = Vec::new();
    for (pid, stat) in members {
        // The pidfd shows that the process is still the one that was inspected.
        if let Some(pidfd) = find(pid, stat.start_time)
            && (has_leader || has_open(pid, lock))
            && !has_ended(&pidfd)
        {
            pidfds.push(pidfd);
        }
    }
    pidfds
}

/// Whether a process has a file open.
fn has_open(pid: u32, file: &File) -> bool {
    let Ok(expected) = fstat(file) else { return false };
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let stats = descriptors.filter_map(|descriptor| rustix::fs::stat(descriptor.path()).ok());
    stats.into_iter().any(|stat| (stat.st_dev, stat.st_ino) == (expected.st_dev, expected.st_ino))
}

#[cfg(test)]
mod tests {
    use std::{os::unix::process::CommandExt, process::Command};

    use super::*;

    /// Starts a wrapper in a session of its own whose child holds the lock and lives for some time after the wrapper.
    fn wrapper(bundle: &Path, seconds: &str) {
        let script = format!(
            "exec 9>{path}; echo $$ >&9; flock 9; sleep {seconds} & exit",
            path = bundle.join(START_LOCK).display()
        );
        let mut command = Command::new("setsid");
        let status = command.args(["--wait", "sh", "-c", &script]).process_group(0).status();
        assert!(status.expect("setsid runs").success());
    }

    #[test]
    fn a_session_that_got_the_id_of_a_command_later_is_not_killed() {
        let bundle = tempfile::tempdir().expect("a bundle");
        let path = bundle.path().join(CREATE_LOCK);
        let file = File::create(&path).expect("the file");
        flock(&file, FlockOperation::NonBlockingLockExclusive).expect("the lock");
        // It leads no process group, so that it does not fork.
        let mut other = Command::new("setsid").args(["sleep", "8006"]).spawn().expect("setsid runs");
        let pid = other.id();
        let session = || stat(pid).ok().flatten().map(|stat| stat.session);
        testbed::wait_until("it leads a session", Duration::from_secs(10), || session() == i32::try_from(pid).ok());
        for text in [format!("{pid} 1\n"), format!("{pid}\n")] {
            fs::write(&path, text).expect("write");
            end(bundle.path(), Duration::ZERO);
            assert!(other.try_wait().expect("its state").is_none(), "it was killed");
        }
        let start_time = stat(pid).ok().flatten().expect("it is running").start_time;
        fs::write(&path, format!("{pid} {start_time}\n")).expect("write");
        end(bundle.path(), Duration::ZERO);
        assert_eq!(other.wait().expect("its state").code(), None, "the session of the command is killed");
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
        let file = File::open(bundle.path().join(START_LOCK)).expect("the file");
        assert_eq!(flock(&file, FlockOperation::NonBlockingLockExclusive), Ok(()), "no process has the lock");
    }
}
