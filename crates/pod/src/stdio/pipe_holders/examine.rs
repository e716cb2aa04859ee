//! Inspection of the threads of containers: where they wait inside the kernel.

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
use syscall::{blocked_call, process_stat::ProcessStat};

use super::{Holder, Pipe, entries, link};
use crate::store::Kind;

/// Time limit for inspecting one process. The files `wchan` and `syscall` of a process that is inside execve(2), and
/// closes a file whose file system does not respond, cannot be read.
const TIMEOUT: Duration = Duration::from_millis(500);
/// Number of processes that may exceed the time limit before the inspection ends.
const TIMEOUTS_MAX: usize = 8;
/// `PF_IO_WORKER` of linux/sched.h: threads of io_uring(7), which are not inside a system call and use the files of
/// their process.
const IO_WORKER: u64 = 0x10;
/// Kernel functions in which threads wait that are idle (for completions, or for submissions), stopped, traced or
/// frozen: such a thread has left its call.
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

/// How certain it is that a thread works on one of the pipes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doubt {
    /// Certain: a descriptor of its call is one of the pipes.
    None,
    /// Possible: the call moves data, or the thread belongs to io_uring(7). The file that it works on may have been
    /// closed since, or is not visible.
    Hidden,
}

/// Inspects all threads of the containers and pods of this state directory. Takes about 50 µs for each process of the
/// machine.
pub(super) fn examine(state_dir: &Path, pipes: &HashSet<Pipe>) -> Vec<Finding> {
    let ids = Ids::read(state_dir);
    let processes = entries(Path::new("/proc"));
    let pids = processes.iter().filter_map(|process| Pid::from_raw(process.file_name().to_str()?.parse().ok()?));
    let mut processes: Vec<(Pid, String)> = pids.filter_map(|pid| Some((pid, ids.owner(pid)?))).collect();
    let (pipes, mut findings) = (Arc::new(pipes.clone()), Vec::new());
    for _ in 0..TIMEOUTS_MAX {
        let (sender, receiver) = mpsc::sync_channel(1);
        let (batch, pipes) = (processes.clone(), Arc::clone(&pipes));
        let inspect = move || batch.into_iter().try_for_each(|(pid, owner)| sender.send(threads(pid, &owner, &pipes)));
        if let Err(error) = thread::Builder::new().name("pipe-holders".into()).spawn(inspect) {
            tracing::warn!("start a thread that inspects processes: {error}");
            return findings;
        }
        let mut inspected = 0;
        loop {
            match receiver.recv_timeout(TIMEOUT) {
                Ok(of_process) => {
                    findings.extend(of_process);
                    inspected += 1;
                }
                Err(RecvTimeoutError::Disconnected) => return findings,
                Err(RecvTimeoutError::Timeout) => break,
            }
        }
        // The blocked thread remains until procfs responds.
        if let Some((pid, owner)) = processes.get(inspected) {
            tracing::warn!(%pid, container = owner, "a process cannot be inspected: procfs does not respond");
        }
        processes.drain(..processes.len().min(inspected + 1));
    }
    findings
}

/// Ids of the containers and of the pods of a state directory.
pub(super) struct Ids([HashSet<String>; 2]);

impl Ids {
    pub(super) fn read(state_dir: &Path) -> Self {
        Self([Kind::Container, Kind::Sandbox].map(|kind| {
            let directories = entries(&state_dir.join(kind.directory()));
            directories.into_iter().filter_map(|entry| entry.file_name().into_string().ok()).collect()
        }))
    }

    /// Returns the owner of the cgroup that a process is in: a container, else a pod.
    pub(super) fn owner(&self, pid: Pid) -> Option<String> {
        // With cgroup v1 a thread that has ended is in no cgroup, even if other threads of its process live.
        let threads = entries(Path::new(&format!("/proc/{pid}/task")));
        threads.iter().find_map(|thread| self.of_groups(&fs::read_to_string(thread.path().join("cgroup")).ok()?))
    }

    /// Parses `/pinion/<pod>/<container>` or `…/pinion-<container>.scope`. Names of cgroups further below are chosen by
    /// the container, and ignored.
    fn of_groups(&self, groups: &str) -> Option<String> {
        let parts = || groups.split(['/', '\n', '-', '.', ':']);
        self.0.iter().find_map(|ids| parts().find(|part| ids.contains(*part)).map(str::to_owned))
    }
}

fn threads(pid: Pid, owner: &str, pipes: &HashSet<Pipe>) -> Vec<Finding> {
    let threads = entries(Path::new(&format!("/proc/{pid}/task")));
    threads.iter().filter_map(|thread| inspect(&thread.path(), pid, owner, pipes)).collect()
}

fn inspect(thread: &Path, pid: Pid, owner: &str, pipes: &HashSet<Pipe>) -> Option<Finding> {
    let read = |name: &str| fs::read_to_string(thread.join(name)).map(|text| text.trim().to_owned()).ok();
    let waits_in = read("wchan")?;
    // `0`: the thread does not wait.
    if waits_in == "0" || waits_in.contains("pipe") || IDLE.contains(&waits_in.as_str()) {
        return None;
    }
    let stat = ProcessStat::parse(&fs::read(thread.join("stat")).ok()?)?;
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
    // Makes sure that everything above was read during the same call.
    if read("wchan")? != waits_in || read("syscall")? != text {
        return None;
    }
    let number = thread.file_name()?.to_str()?.parse().ok()?;
    Some(Finding { holder: Holder { pid, thread: number, owner: owner.to_owned(), call: text, waits_in }, doubt })
}

fn descriptor(thread: &Path, number: i32) -> PathBuf {
    thread.join(format!("fd/{number}"))
}

/// Reports whether a thread is stopped or traced.
fn is_stopped(stat: &ProcessStat) -> bool {
    matches!(stat.state, b'T' | b't')
}

/// Reports whether a thread belongs to io_uring(7). The name of a thread proves nothing, because any process can choose
/// it.
fn is_io_worker(stat: &ProcessStat) -> bool {
    stat.flags & IO_WORKER != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(head: &str, flags: u64) -> ProcessStat {
        let text = format!("{head} 1 1 1 0 -1 {flags} 0 0 0 0 0 0 0 0 20 0 1 0 3000 8192 3");
        ProcessStat::parse(text.as_bytes()).expect("the fields of proc_pid_stat(5)")
    }

    #[test]
    fn the_owner_is_the_container_and_not_the_name_of_a_cgroup_below() {
        let ids = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect();
        let ids = Ids([ids(&["c1", "c2"]), ids(&["p1"])]);
        let owner = |groups: &str| ids.of_groups(groups);
        assert_eq!(owner("4:memory:/pinion/p1/c1\n0::/pinion/p1/c1/c2\n").as_deref(), Some("c1"));
        assert_eq!(owner("0::/pods.slice/pinion-c2.scope\n").as_deref(), Some("c2"));
        assert_eq!(owner("0::/pinion/p1/p1-init\n").as_deref(), Some("p1"));
        assert_eq!(owner("4:memory:/\n0::/user.slice\n"), None);
    }

    #[test]
    fn a_stopped_thread_is_not_in_a_call() {
        assert!(is_stopped(&stat("7 (a) T", 64)) && is_stopped(&stat("7 (b) S) t", 64)));
        assert!(!is_stopped(&stat("7 (c) T) S", 64)));
    }

    #[test]
    fn a_thread_name_does_not_make_an_io_worker() {
        assert!(is_io_worker(&stat("7 (iou-wrk-1) S", 4_194_384)));
        assert!(!is_io_worker(&stat("7 (iou) wrk-1) S", 4_194_304)));
    }
}
