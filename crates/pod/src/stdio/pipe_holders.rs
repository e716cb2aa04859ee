//! Processes of containers that keep a pipe of a daemon locked inside the kernel, so that the daemon cannot close it.
//!
//! splice(2) between a pipe and a socket sleeps while it holds the pipe's mutex, and the close of a pipe waits for that
//! mutex, uninterruptibly. A killed daemon closes its pipes while it exits: the exit does not complete, and its locks
//! and sockets stay. Only a daemon could stop the container, but none can start. Therefore a daemon that starts kills
//! these processes first ([`Rescue`]): threads of containers that are inside a call on a pipe of the previous daemon
//! and wait in it for something other than the pipe. Likewise an execve(2) of a daemon would not return, so it is
//! refused ([`holders_of_own_pipes`]).

mod examine;
mod rescue;

use std::{
    collections::HashSet,
    fs::{self, DirEntry},
    path::Path,
    thread,
    time::Duration,
};

use rustix::process::Pid;

use super::pipe_record::recorded as recorded_pipes;
use crate::store::{FIFOS, Kind};
use examine::{Doubt, Finding, examine};

pub use rescue::Rescue;

/// A thread that is seen at the same place in the kernel twice, this far apart, waits there.
const PAUSE: Duration = Duration::from_millis(300);

/// A thread of a container that keeps a pipe locked inside the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Holder {
    /// Pid of its process.
    pub pid: Pid,
    /// Its thread id.
    pub thread: u32,
    /// Id of its container or pod.
    pub owner: String,
    /// System call number and arguments (`/proc/<pid>/syscall`, proc(5)).
    pub call: String,
    /// Kernel function that it waits in (`wchan`).
    pub waits_in: String,
}

/// Target of the link to a descriptor (proc(5), `/proc/<pid>/fd`): `pipe:[<inode number>]`, or the path of a FIFO.
/// Reading the link does not call the file system: a stat(2) of a container's file may wait forever for the server of
/// that file.
type Pipe = String;

/// Returns the processes of containers of this state directory that keep pipes of the calling process locked. Blocks
/// for 300 ms if any exist.
pub(crate) fn holders_of_own_pipes(state_dir: &Path) -> Vec<Holder> {
    let fifos = fifos(state_dir);
    let open = links(Path::new("/proc/self/fd")).filter(|link| link.starts_with("pipe:") || fifos.contains(link));
    let pipes = open.collect();
    let look = || {
        let mut findings = examine(state_dir, &pipes);
        findings.retain(|finding| finding.doubt == Doubt::None || has_one_of(finding, &pipes));
        findings.into_iter().map(|finding| finding.holder).collect::<Vec<Holder>>()
    };
    let first = look();
    if first.is_empty() {
        return first;
    }
    thread::sleep(PAUSE);
    look().into_iter().filter(|holder| first.contains(holder)).collect()
}

/// Reports whether a process of a container keeps this FIFO (`<state directory>/container/<id>/<name>`) locked.
pub(crate) fn is_held(fifo: &Path) -> bool {
    let Some(state_dir) = fifo.ancestors().nth(3) else { return false };
    #[expect(clippy::disallowed_methods, reason = "the path is compared with those in the kernel's tables")]
    let path = fs::canonicalize(fifo).ok().and_then(|path| path.into_os_string().into_string().ok());
    let pipes = path.into_iter().collect();
    let findings = examine(state_dir, &pipes);
    findings.iter().any(|finding| finding.doubt == Doubt::None || has_one_of(finding, &pipes))
}

fn has_one_of(finding: &Finding, pipes: &HashSet<Pipe>) -> bool {
    let Holder { pid, thread, .. } = finding.holder;
    links(Path::new(&format!("/proc/{pid}/task/{thread}/fd"))).any(|link| pipes.contains(&link))
}

/// Returns the pipes that a daemon has or had: FIFOs of containers, recorded pipes, and the pipes that threads of its
/// process still have open.
fn pipes_of(state_dir: &Path, daemon: Pid) -> HashSet<Pipe> {
    let mut pipes = fifos(state_dir);
    pipes.extend(recorded_pipes(state_dir).into_iter().map(|number| format!("pipe:[{number}]")));
    let threads = entries(Path::new(&format!("/proc/{daemon}/task")));
    // All living threads share one table of descriptors.
    let open = threads.iter().map(|thread| entries(&thread.path().join("fd"))).find(|open| !open.is_empty());
    let open = open.unwrap_or_default().into_iter().filter_map(|entry| link(&entry.path()));
    pipes.extend(open.filter(|link| link.starts_with("pipe:")));
    pipes
}

/// Returns the paths of the FIFOs of all containers.
fn fifos(state_dir: &Path) -> HashSet<Pipe> {
    // The kernel shows canonical paths.
    #[expect(clippy::disallowed_methods, reason = "the path is compared with those in the kernel's tables")]
    let state_dir = fs::canonicalize(state_dir).unwrap_or_else(|_| state_dir.to_owned());
    let containers = entries(&state_dir.join(Kind::Container.directory()));
    let paths = containers.iter().flat_map(|container| FIFOS.map(|name| container.path().join(name)));
    paths.filter_map(|path| path.into_os_string().into_string().ok()).collect()
}

/// Returns the targets of all links in a directory of descriptors.
fn links(descriptors: &Path) -> impl Iterator<Item = String> {
    entries(descriptors).into_iter().filter_map(|entry| link(&entry.path()))
}

fn link(descriptor: &Path) -> Option<String> {
    let text = fs::read_link(descriptor).ok()?.into_os_string().into_string().ok()?;
    Some(text.strip_suffix(" (deleted)").map(str::to_owned).unwrap_or(text))
}

/// Returns the entries of a directory of procfs; none if it cannot be read, because processes may exit at any time.
fn entries(directory: &Path) -> Vec<DirEntry> {
    fs::read_dir(directory).into_iter().flatten().flatten().collect()
}
