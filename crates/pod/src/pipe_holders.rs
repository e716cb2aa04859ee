//! Processes of containers that keep a pipe of a daemon locked inside the kernel, which the daemon cannot close then.
//!
//! splice(2) between a pipe and a socket sleeps with the pipe's mutex, and the close of a pipe waits for that mutex,
//! uninterruptibly. A daemon that was killed closes its pipes in its exit: the exit does not complete, and its locks and sockets
//! stay. Nobody but the next daemon can stop the container, and that one cannot start. So it ends these processes first
//! ([`Rescue`]), and these alone: threads of containers that are inside a call on a pipe of that daemon, and wait in it for
//! something else than the pipe. Likewise an execve(2) of a daemon would not return, so it is not begun ([`holders_of_own_pipes`]).

mod rescue;

use std::{
    collections::HashSet,
    fs::{self, DirEntry},
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::Path,
};

use rustix::process::Pid;
use syscall::blocked_call;

use crate::{container::stdio::FIFOS, session::recorded_pipes, state::Kind};

pub use rescue::Rescue;

/// A thread of a container that keeps a pipe locked.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Holder {
    /// Its process.
    pub pid: Pid,
    /// Id of the container or pod.
    pub owner: String,
    /// Number of the system call and its arguments (proc(5)).
    pub call: String,
    /// The kernel function that it waits in.
    pub waits_in: String,
}

/// Device and inode number of a pipe.
type PipeId = (u64, u64);

/// What a thread of a container does.
struct Thread {
    holder: Holder,
    /// A worker of io_uring(7), which makes calls on its process's files and is inside none.
    is_worker: bool,
    touches: bool,
}

/// Processes of containers of this state directory that keep pipes of the calling process locked.
pub(crate) fn holders_of_own_pipes(state_dir: &Path) -> Vec<Holder> {
    let pipes = open_pipes(Path::new("/proc/self/fd")).collect();
    holders(&threads(state_dir, &pipes)).cloned().collect()
}

/// Those that wait for something else than a pipe.
fn holders(threads: &[Thread]) -> impl Iterator<Item = &Holder> {
    threads.iter().filter(|thread| thread.touches && !thread.is_worker).map(|thread| &thread.holder)
}

/// Pipes that a daemon has or had: FIFOs of containers, pipes on record, and what threads of its process still have open.
fn pipes_of(state_dir: &Path, daemon: Pid) -> HashSet<PipeId> {
    let mut pipes = HashSet::new();
    for container in entries(&state_dir.join(Kind::Container.folder())) {
        pipes.extend(FIFOS.iter().filter_map(|name| pipe_id(&container.path().join(name))));
    }
    if let Some(device) = pipe_device() {
        pipes.extend(recorded_pipes(state_dir).into_iter().map(|number| (device, number)));
    }
    for thread in entries(Path::new(&format!("/proc/{daemon}/task"))) {
        pipes.extend(open_pipes(&thread.path().join("fd")));
    }
    pipes
}

/// The device of all pipes without a name.
fn pipe_device() -> Option<u64> {
    let (reader, _writer) = std::io::pipe().ok()?;
    rustix::fs::fstat(&reader).ok().map(|status| status.st_dev)
}

fn open_pipes(descriptors: &Path) -> impl Iterator<Item = PipeId> {
    entries(descriptors).into_iter().filter_map(|entry| pipe_id(&entry.path()))
}

/// The pipe at this path. A stat(2) waits for no mutex of a pipe.
fn pipe_id(path: &Path) -> Option<PipeId> {
    let metadata = fs::metadata(path).ok().filter(|metadata| metadata.file_type().is_fifo())?;
    Some((metadata.dev(), metadata.ino()))
}

/// What cannot be read has none: processes end all the time.
fn entries(directory: &Path) -> Vec<DirEntry> {
    fs::read_dir(directory).into_iter().flatten().flatten().collect()
}

/// All threads of containers and pods of this state directory that wait for something else than a pipe.
fn threads(state_dir: &Path, pipes: &HashSet<PipeId>) -> Vec<Thread> {
    let kinds = [Kind::Sandbox, Kind::Container];
    let directories = kinds.iter().flat_map(|kind| entries(&state_dir.join(kind.folder())));
    let ids: HashSet<String> = directories.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    let mut threads = Vec::new();
    for process in entries(Path::new("/proc")) {
        let pid = process.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw);
        let Some(pid) = pid else { continue };
        let Some(owner) = owner(&process.path(), &ids) else { continue };
        for thread in entries(&process.path().join("task")) {
            threads.extend(look_at(&thread.path(), pid, &owner, pipes));
        }
    }
    threads
}

/// The object in whose cgroup a process is.
fn owner(process: &Path, ids: &HashSet<String>) -> Option<String> {
    let groups = fs::read_to_string(process.join("cgroup")).ok()?;
    // `/pinion/<pod>/<container>`, `…/pinion-<container>.scope`.
    let mut words = groups.split(['/', '\n', '-', '.', ':']);
    // The innermost is the container's.
    words.rfind(|word| ids.contains(*word)).map(str::to_owned)
}

fn look_at(thread: &Path, pid: Pid, owner: &str, pipes: &HashSet<PipeId>) -> Option<Thread> {
    let read = |name: &str| fs::read_to_string(thread.join(name)).map(|text| text.trim().to_owned());
    let waits_in = read("wchan").ok()?;
    // `0`: it does not wait.
    if waits_in == "0" || waits_in.contains("pipe") {
        return None;
    }
    let call = read("syscall").ok()?;
    let is_worker = read("comm").ok()?.starts_with("iou-wrk");
    let touches = match is_worker {
        false => {
            let is_pipe =
                |number: &i32| pipe_id(&thread.join(format!("fd/{number}"))).is_some_and(|pipe| pipes.contains(&pipe));
            blocked_call::descriptors(&call).iter().any(is_pipe)
        }
        true => waits_in != "io_wq_worker" && open_pipes(&thread.join("fd")).any(|pipe| pipes.contains(&pipe)),
    };
    let holder = Holder { pid, owner: owner.to_owned(), call, waits_in };
    Some(Thread { holder, is_worker, touches })
}
