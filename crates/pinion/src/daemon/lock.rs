use std::{
    fs::{self, DirBuilder, File},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use pod::Rescue;
use rustix::{
    fs::{FlockOperation, flock},
    process::Pid,
};

use crate::Failure;

/// How long to wait for a daemon that may be about to exit.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);
/// How long to wait for a daemon that was killed and cannot exit, because processes of containers keep its pipes
/// locked.
const KILLED_TIMEOUT: Duration = Duration::from_secs(60);
/// Time between two searches for these processes.
const RESCUE_PAUSE: Duration = Duration::from_millis(250);
/// How long to wait for the lock of a daemon that exited: a process that it forked holds the lock, too, until it
/// executes its program.
const CHILD_TIMEOUT: Duration = Duration::from_secs(10);

/// An exclusive lock on a state directory. The kernel releases it when the process exits for any reason.
#[derive(Debug)]
pub(crate) struct Lock {
    path: PathBuf,
    _file: File,
}

impl Lock {
    /// Locks a directory, which need not exist yet.
    ///
    /// The locked file is next to the directory, not in it: the engine may mount a tmpfs over the directory, and the
    /// next daemon would then see another file. If another daemon holds the lock, waits for [`EXIT_TIMEOUT`] in case
    /// that is about to exit. A daemon that was killed and cannot exit is unblocked by [`Rescue`].
    pub(crate) fn take(state_dir: &Path) -> Result<Self, Failure> {
        let path = state_dir.with_extension("lock");
        let failed = |error: io::Error| Failure::daemon(format!("lock {}: {error}", path.display()));
        if let Some(directory) = path.parent() {
            DirBuilder::new().recursive(true).mode(0o755).create(directory).map_err(failed)?;
        }
        let start = Instant::now();
        let mut rescue = None;
        loop {
            let mut file =
                File::options().read(true).write(true).create(true).truncate(false).open(&path).map_err(failed)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => {
                    let owner = owner(&mut file);
                    if start.elapsed() > if is_alive(&owner) { EXIT_TIMEOUT } else { CHILD_TIMEOUT } {
                        if start.elapsed() > KILLED_TIMEOUT || !rescue_round(state_dir, &owner, &mut rescue) {
                            return Err(locked(state_dir, &owner));
                        }
                        thread::sleep(RESCUE_PAUSE);
                    }
                    thread::sleep(EXIT_TIMEOUT / 100);
                    continue;
                }
                Err(error) => return Err(failed(error.into())),
            }
            // A daemon that exited between our open and our lock has removed the file.
            let same = fs::metadata(&path).is_ok_and(|now| file.metadata().is_ok_and(|ours| ours.ino() == now.ino()));
            if same {
                file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id())).map_err(failed)?;
                return Ok(Self { path, _file: file });
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // A leftover file is harmless, because nothing holds a lock on it.
        let _ = fs::remove_file(&self.path);
    }
}

/// Reads the pid of the lock's owner; empty if it is unknown.
fn owner(file: &mut File) -> String {
    let mut owner = String::new();
    let _ = file.take(16).read_to_string(&mut owner);
    owner.trim().to_owned()
}

fn is_alive(owner: &str) -> bool {
    !owner.is_empty() && Path::new("/proc").join(owner).exists()
}

/// Kills processes of containers that keep the previous daemon from exiting after it was killed. Returns false if the
/// owner is not a daemon that was killed.
fn rescue_round(state_dir: &Path, owner: &str, rescue: &mut Option<Rescue>) -> bool {
    let Some(pid) = owner.parse().ok().and_then(Pid::from_raw) else { return false };
    if rescue.as_ref().is_none_or(|rescue| rescue.daemon() != pid || !rescue.is_needed()) {
        *rescue = Rescue::new(state_dir, pid);
        if rescue.is_some() {
            tracing::warn!(
                pid = owner,
                "the previous daemon was killed and cannot exit: searching for processes that keep its pipes locked"
            );
        }
    }
    let Some(rescue) = rescue else { return false };
    for holder in rescue.round() {
        tracing::warn!(
            pid = %holder.pid,
            container = holder.owner,
            call = holder.call,
            waits_in = holder.waits_in,
            "killed a process that kept a pipe of the previous daemon locked inside the kernel"
        );
    }
    true
}

fn locked(state_dir: &Path, owner: &str) -> Failure {
    let state = state_dir.display();
    Failure::daemon(format!(
        "lock state directory {state}: another daemon (pid {owner}) uses it; stop it or use another --state-dir"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_daemon_holds_the_lock_until_it_exits() {
        let dir = tempfile::tempdir().expect("a directory");
        let state = dir.path().join("a/b");
        let first = Lock::take(&state).expect("free");
        let error = Lock::take(&state).expect_err("locked").to_string();
        assert!(error.contains(&format!("pid {}", std::process::id())), "{error}");
        drop(first);
        let _second = Lock::take(&state).expect("free again");
        assert!(!state.exists(), "the engine creates the directory itself");
    }

    #[test]
    fn a_lock_of_an_exited_daemon_is_waited_for() {
        let dir = tempfile::tempdir().expect("a directory");
        let state = dir.path().join("state");
        let path = state.with_extension("lock");
        // A pid that no process has.
        fs::write(&path, "4194305\n").expect("written");
        let leftover = File::open(&path).expect("opened");
        flock(&leftover, FlockOperation::LockExclusive).expect("free");
        let release = thread::spawn(move || {
            thread::sleep(EXIT_TIMEOUT + Duration::from_millis(300));
            drop(leftover);
        });
        Lock::take(&state).expect("waited for");
        release.join().expect("joined");
    }

    #[test]
    fn the_file_of_an_exited_daemon_is_not_a_lock() {
        let dir = tempfile::tempdir().expect("a directory");
        let state = dir.path().join("state");
        fs::write(state.with_extension("lock"), "1\n").expect("written");
        Lock::take(&state).expect("free");
    }
}
