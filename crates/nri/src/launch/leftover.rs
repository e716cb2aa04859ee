//! Processes of launched plugins on record, so that those of a daemon that was killed do not stay.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::{AsFd, OwnedFd},
    process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid},
};

/// The record: start times by pid. A pid alone does not identify a process.
pub(crate) struct Processes {
    path: PathBuf,
    running: Mutex<BTreeMap<u32, u64>>,
}

impl Processes {
    pub(crate) fn new(path: &Path) -> Arc<Self> {
        Arc::new(Self { path: path.to_owned(), running: Mutex::default() })
    }

    /// Records a process until the result is dropped.
    pub(crate) fn add(processes: &Arc<Self>, pid: u32) -> Recorded {
        if let Some(start_time) = start_time(pid) {
            processes.change(|running| _ = running.insert(pid, start_time));
        }
        Recorded(Arc::clone(processes), pid)
    }

    fn change(&self, change: impl FnOnce(&mut BTreeMap<u32, u64>)) {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut running);
        let written = offload::in_place(|| {
            let new = self.path.with_extension("new");
            std::fs::write(&new, serde_json::to_vec(&*running)?)?;
            std::fs::rename(&new, &self.path)
        });
        if let Err(error) = written {
            tracing::warn!(%error, "the processes of NRI plugins cannot be recorded");
        }
    }
}

/// A process on record.
pub(crate) struct Recorded(Arc<Processes>, u32);

impl Drop for Recorded {
    fn drop(&mut self) {
        self.0.change(|running| _ = running.remove(&self.1));
    }
}

/// Ends the recorded processes of an earlier daemon. Blocks.
pub(crate) fn end_leftover(record: &Path) {
    let Ok(text) = std::fs::read(record) else { return };
    let Ok(running) = serde_json::from_slice::<BTreeMap<u32, u64>>(&text) else { return };
    for (pid, recorded) in running {
        let Some(process) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { continue };
        // The pidfd is opened first: a process that has the recorded start time afterwards is the one it refers to.
        let Ok(pidfd) = pidfd_open(process, PidfdFlags::empty()) else { continue };
        if start_time(pid) == Some(recorded) {
            tracing::info!(pid, "ending an NRI plugin that an earlier daemon launched");
            let _ = pidfd_send_signal(&pidfd, Signal::KILL);
            reap(&pidfd);
        }
    }
}

/// Reaps a killed process if it is a child of this process: a daemon that replaced its program keeps its children.
fn reap(pidfd: &OwnedFd) {
    let end = Timespec { tv_sec: 1, tv_nsec: 0 };
    // A process that hangs in the kernel is not waited for.
    if poll(&mut [PollFd::new(pidfd, PollFlags::IN)], Some(&end)).is_ok_and(|ready| ready > 0) {
        let _ = waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
    }
}

/// Returns the start time of a process (proc_pid_stat(5), field 22).
fn start_time(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}
