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

/// How long a daemon that is just ending may take.
const ENDING: Duration = Duration::from_secs(1);
/// How long a daemon may take that was killed and cannot end, because processes of containers keep its pipes locked.
const KILLED: Duration = Duration::from_secs(60);
/// Between two looks for these processes.
const RESCUE_PAUSE: Duration = Duration::from_millis(250);
/// How long what a daemon left may take that ended: a process it forked holds the lock, too, until it executes its
/// program.
const ENDED: Duration = Duration::from_secs(10);

/// A directory of state that is this process's alone. The lock ends with the process, however that ends.
#[derive(Debug)]
pub(crate) struct Lock {
    path: PathBuf,
    _file: File,
}

impl Lock {
    /// Takes a directory, which need not be there yet.
    ///
    /// The locked file lies beside it, not in it: the engine may mount a tmpfs over the directory, and the next daemon
    /// would then look at another file. Blocks for a second where another daemon has it, in case that is ending. One
    /// that was killed and cannot end is rescued ([`Rescue`]).
    pub(crate) fn take(state_dir: &Path) -> Result<Self, Failure> {
        let path = state_dir.with_extension("lock");
        let wrong = |error: io::Error| Failure::daemon(format!("lock {}: {error}", path.display()));
        if let Some(directory) = path.parent() {
            DirBuilder::new().recursive(true).mode(0o755).create(directory).map_err(wrong)?;
        }
        let begin = Instant::now();
        let mut rescue = None;
        loop {
            let mut file =
                File::options().read(true).write(true).create(true).truncate(false).open(&path).map_err(wrong)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => {
                    let owner = owner(&mut file);
                    if begin.elapsed() > if lives(&owner) { ENDING } else { ENDED } {
                        if begin.elapsed() > KILLED || !rescue_round(state_dir, &owner, &mut rescue) {
                            return Err(taken(state_dir, &owner));
                        }
                        thread::sleep(RESCUE_PAUSE);
                    }
                    thread::sleep(ENDING / 100);
                    continue;
                }
                Err(error) => return Err(wrong(error.into())),
            }
            // A daemon that ended between our open and our lock took the file away with it.
            let same = fs::metadata(&path).is_ok_and(|now| file.metadata().is_ok_and(|ours| ours.ino() == now.ino()));
            if same {
                file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id())).map_err(wrong)?;
                return Ok(Self { path, _file: file });
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Only tidiness: a file that stays is locked by nobody.
        let _ = fs::remove_file(&self.path);
    }
}

/// Whose it is; empty where nobody knows.
fn owner(file: &mut File) -> String {
    let mut owner = String::new();
    let _ = file.take(16).read_to_string(&mut owner);
    owner.trim().to_owned()
}

fn lives(owner: &str) -> bool {
    !owner.is_empty() && Path::new("/proc").join(owner).exists()
}

/// Ends processes of containers that keep the previous daemon, which was killed, from its end. False where the owner is
/// none that was killed.
fn rescue_round(state_dir: &Path, owner: &str, rescue: &mut Option<Rescue>) -> bool {
    let Some(pid) = owner.parse().ok().and_then(Pid::from_raw) else { return false };
    if rescue.as_ref().is_none_or(|rescue| rescue.daemon() != pid || !rescue.is_needed()) {
        *rescue = Rescue::of(state_dir, pid);
        if rescue.is_some() {
            tracing::warn!(
                pid = owner,
                "the previous daemon was killed and does not end: looking for processes of containers that keep its pipes locked"
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
            "killed: it kept a pipe of the previous daemon locked inside the kernel"
        );
    }
    true
}

fn taken(state_dir: &Path, owner: &str) -> Failure {
    let state = state_dir.display();
    Failure::daemon(format!("another daemon (pid {owner}) has {state}; end it or use another --state-dir"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_daemon_has_a_directory_until_it_ends() {
        let dir = tempfile::tempdir().expect("a directory");
        let state = dir.path().join("a/b");
        let first = Lock::take(&state).expect("free");
        let refused = Lock::take(&state).expect_err("taken").to_string();
        assert!(refused.contains(&format!("pid {}", std::process::id())), "{refused}");
        drop(first);
        let _second = Lock::take(&state).expect("free again");
        assert!(!state.exists(), "the directory itself is the engine's to make");
    }

    #[test]
    fn what_a_dead_daemon_left_is_waited_for() {
        let dir = tempfile::tempdir().expect("a directory");
        let state = dir.path().join("state");
        let path = state.with_extension("lock");
        // A number that no process has.
        fs::write(&path, "4194305\n").expect("written");
        let left = File::open(&path).expect("opened");
        flock(&left, FlockOperation::LockExclusive).expect("free");
        let ends = thread::spawn(move || {
            thread::sleep(ENDING + Duration::from_millis(300));
            drop(left);
        });
        Lock::take(&state).expect("waited for");
        ends.join().expect("ended");
    }

    #[test]
    fn a_dead_daemons_file_is_no_lock() {
        let dir = tempfile::tempdir().expect("a directory");
        let state = dir.path().join("state");
        fs::write(state.with_extension("lock"), "1\n").expect("written");
        Lock::take(&state).expect("free");
    }
}
