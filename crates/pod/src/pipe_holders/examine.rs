//! What threads of containers wait for inside the kernel.

use std::{
    collections::HashSet,
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::Duration,
};

use rustix::process::Pid;
use syscall::blocked_call;

use super::{Holder, Pipe, entries, link};
use crate::state::Kind;

/// How long one process is looked at. One that is inside execve(2) and closes a file whose file system does not answer
/// keeps `wchan` and `syscall` from being read.
const PATIENCE: Duration = Duration::from_millis(500);
/// As many processes may be given up.
const GIVEN_UP_MAX: usize = 8;
/// `PF_IO_WORKER` of linux/sched.h: threads of io_uring(7), which are inside no call and use the files of their
/// process.
const IO_WORKER: u64 = 0x10;
/// Where threads wait that have nothing to do (for completions, or for something to submit), and those that are
/// stopped, traced or frozen, which left their call for that.
const IDLE: [&str; 7] = [
    "io_wq_worker",
    "io_sq_thread",
    "io_cqring_wait",
    "do_signal_stop",
    "ptrace_stop",
    "do_freezer_trap",
    "__refrigerator",
];

/// A thread that waits for something other than a pipe.
pub(super) struct Finding {
    pub(super) holder: Holder,
    pub(super) doubt: Doubt,
}

/// Whether it is certain that a thread works on one of the pipes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doubt {
    /// A descriptor of its call is one.
    None,
    /// It moves data, or is a thread of io_uring(7): what it works on may be closed since, or is not visible.
    Hidden,
}

/// Looks at all threads of containers and pods of this state directory. Takes some 50 µs for each process of the
/// machine.
pub(super) fn examine(state_dir: &Path, pipes: &HashSet<Pipe>) -> Vec<Finding> {
    let ids = Ids::of(state_dir);
    let processes = entries(Path::new("/proc"));
    let pids = processes.iter().filter_map(|process| Pid::from_raw(process.file_name().to_str()?.parse().ok()?));
    let mut processes: Vec<(Pid, String)> = pids.filter_map(|pid| Some((pid, ids.owner(pid)?))).collect();
    let (pipes, mut findings) = (Arc::new(pipes.clone()), Vec::new());
    for _ in 0..GIVEN_UP_MAX {
        let (sender, receiver) = mpsc::channel();
        let (batch, pipes) = (processes.clone(), Arc::clone(&pipes));
        thread::spawn(move || batch.into_iter().try_for_each(|(pid, owner)| sender.send(threads(pid, &owner, &pipes))));
        let mut done = 0;
        loop {
            match receiver.recv_timeout(PATIENCE) {
                Ok(found) => {
                    findings.extend(found);
                    done += 1;
                }
                Err(RecvTimeoutError::Disconnected) => return findings,
                Err(RecvTimeoutError::Timeout) => break,
            }
        }
        // Its thread stays until procfs answers.
        if let Some((pid, owner)) = processes.get(done) {
            tracing::warn!(%pid, container = owner, "a process cannot be looked at: procfs does not answer");
        }
        processes.drain(..processes.len().min(done + 1));
    }
    findings
}

/// Ids of the containers and pods of a state directory.
pub(super) struct Ids([HashSet<String>; 2]);

impl Ids {
    pub(super) fn of(state_dir: &Path) -> Self {
        Self([Kind::Container, Kind::Sandbox].map(|kind| {
            let directories = entries(&state_dir.join(kind.directory()));
            directories.into_iter().filter_map(|entry| entry.file_name().into_string().ok()).collect()
        }))
    }

    /// The object in whose cgroup a process is: a container, else a pod.
    pub(super) fn owner(&self, pid: Pid) -> Option<String> {
        // With cgroup v1 a thread that has ended is in no group, also where others of its process live.
        let threads = entries(Path::new(&format!("/proc/{pid}/task")));
        threads.iter().find_map(|thread| self.of_groups(&fs::read_to_string(thread.path().join("cgroup")).ok()?))
    }

    /// `/pinion/<pod>/<container>`, `…/pinion-<container>.scope`. Groups below are the container's, which names them.
    fn of_groups(&self, groups: &str) -> Option<String> {
        let words = || groups.split(['/', '\n', '-', '.', ':']);
        self.0.iter().find_map(|ids| words().find(|word| ids.contains(*word)).map(str::to_owned))
    }
}

fn threads(pid: Pid, owner: &str, pipes: &HashSet<Pipe>) -> Vec<Finding> {
    let threads = entries(Path::new(&format!("/proc/{pid}/task")));
    threads.iter().filter_map(|thread| inspect(&thread.path(), pid, owner, pipes)).collect()
}

fn inspect(thread: &Path, pid: Pid, owner: &str, pipes: &HashSet<Pipe>) -> Option<Finding> {
    let read = |name: &str| fs::read_to_string(thread.join(name)).map(|text| text.trim().to_owned()).ok();
    let waits_in = read("wchan")?;
    // `0`: it does not wait.
    if waits_in == "0" || waits_in.contains("pipe") || IDLE.contains(&waits_in.as_str()) {
        return None;
    }
    let stat = read("stat")?;
    if is_stopped(&stat) {
        return None;
    }
    let text = read("syscall")?;
    let call = blocked_call::parse(&text);
    let is_pipe = |number: &i32| link(&descriptor(thread, *number)).is_some_and(|link| pipes.contains(&link));
    let doubt = match &call {
        Some(call) if call.descriptors.iter().any(is_pipe) => Doubt::None,
        Some(call) if call.moves_data => Doubt::Hidden,
        _ if is_io_worker(&stat) => Doubt::Hidden,
        _ => return None,
    };
    // All of it was read of one call.
    if read("wchan")? != waits_in || read("syscall")? != text {
        return None;
    }
    let number = thread.file_name()?.to_str()?.parse().ok()?;
    Some(Finding { holder: Holder { pid, thread: number, owner: owner.to_owned(), call: text, waits_in }, doubt })
}

fn descriptor(thread: &Path, number: i32) -> PathBuf {
    thread.join(format!("fd/{number}"))
}

/// Whether a thread is stopped or traced: field 3 of its `stat`.
fn is_stopped(stat: &str) -> bool {
    stat.rsplit_once(") ").is_some_and(|(_, fields)| fields.starts_with(['T', 't']))
}

/// Whether a thread belongs to io_uring(7): field 9 of its `stat`. Its name it can choose.
fn is_io_worker(stat: &str) -> bool {
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let flags = fields.split_ascii_whitespace().nth(9 - 3).and_then(|flags| flags.parse::<u64>().ok());
    flags.is_some_and(|flags| flags & IO_WORKER != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_is_the_container_and_no_name_of_a_group_below() {
        let ids = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect();
        let ids = Ids([ids(&["c1", "c2"]), ids(&["p1"])]);
        let owner = |groups: &str| ids.of_groups(groups);
        assert_eq!(owner("4:memory:/pinion/p1/c1\n0::/pinion/p1/c1/c2\n").as_deref(), Some("c1"));
        assert_eq!(owner("0::/pods.slice/pinion-c2.scope\n").as_deref(), Some("c2"));
        assert_eq!(owner("0::/pinion/p1/p1-init\n").as_deref(), Some("p1"));
        assert_eq!(owner("4:memory:/\n0::/user.slice\n"), None);
    }

    #[test]
    fn a_stopped_thread_is_in_no_call() {
        assert!(is_stopped("7 (a) T 1 1 1 0 -1 64 0") && is_stopped("7 (b) S) t 1 1 1 0 -1 64 0"));
        assert!(!is_stopped("7 (c) T) S 1 1 1 0 -1 64 0") && !is_stopped(""));
    }

    #[test]
    fn a_name_makes_no_worker() {
        assert!(is_io_worker("7 (iou-wrk-1) S 1 1 1 0 -1 4194384 0"));
        assert!(!is_io_worker("7 (iou) wrk-1) S 1 1 1 0 -1 4194304 0"));
        assert!(!is_io_worker(""));
    }
}
