//! Preparation of the state directory: it must be on a tmpfs and belong to this boot.

use std::{
    fs::{self, DirBuilder, OpenOptions},
    io::ErrorKind,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::{
    fd::OwnedFd,
    mount::{MountFlags, mount},
};
use syscall::file_lock::lock_with_timeout;

use super::Records;
use crate::{Error, error::failed};

const TMPFS_MAGIC: u64 = 0x0102_1994;
/// Containers in user namespaces must be able to traverse the directories, but not to read them.
const MODE: u32 = 0o711;
/// How long a daemon that is exiting may still hold the lock.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// Names of all FIFOs that a container may have in its directory.
pub(crate) const FIFOS: [&str; 3] = [STDIN, "stdout", "stderr"];
/// Name of the FIFO of a container's standard input.
pub(crate) const STDIN: &str = "stdin";

/// Source of the tmpfs that is mounted on the state directory, by which it is recognized.
pub(crate) const TMPFS_SOURCE: &str = "pinion";

/// The prepared state directory.
#[derive(Debug)]
pub(crate) struct StateDirectory {
    root: PathBuf,
}

impl StateDirectory {
    /// Creates the directory. If it is not on a tmpfs, mounts one there.
    pub(crate) fn open(root: &Path) -> Result<Self, Error> {
        if !root.is_absolute() {
            return Err(Error::invalid(format!("state directory {}: the path is not absolute", root.display())));
        }
        make(root)?;
        if !on_tmpfs(root)? {
            tracing::info!("{} is not on a tmpfs: mounting one there", root.display());
            let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
            mount(TMPFS_SOURCE, root, "tmpfs", flags, c"mode=0711")
                .map_err(failed(format_args!("mount a tmpfs on {}", root.display())))?;
        }
        Ok(Self { root: root.to_owned() })
    }

    /// Locks the directory against other daemons for as long as the descriptor is open. Waits for a daemon that is
    /// exiting.
    pub(crate) fn lock(&self) -> Result<OwnedFd, Error> {
        let path = self.root.join("lock");
        let operation = format!("lock {}", path.display());
        let file = OpenOptions::new().create(true).append(true).open(&path).map_err(failed(&operation))?;
        match lock_with_timeout(&file, LOCK_TIMEOUT) {
            Ok(()) => Ok(file.into()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                Err(Error::state(format!("{operation}: another daemon uses this state directory")))
            }
            Err(error) => Err(failed(operation)(error)),
        }
    }

    /// Returns the directory in which network namespaces are pinned.
    pub(crate) fn netns(&self) -> PathBuf {
        self.root.join("netns")
    }

    /// Returns the directory in which other namespaces are pinned.
    pub(crate) fn namespaces(&self) -> PathBuf {
        self.root.join("namespaces")
    }

    pub(crate) fn records(&self) -> Records {
        Records::new(&self.root)
    }

    /// Discards the records if the machine was rebooted: their processes are gone, and the pids may have been reused.
    /// Creates missing subdirectories.
    pub(crate) fn discard_other_boot(&self) -> Result<(), Error> {
        let source = "/proc/sys/kernel/random/boot_id";
        let boot = fs::read_to_string(source).map_err(failed(format_args!("read {source}")))?;
        let path = self.root.join("boot_id");
        match fs::read_to_string(&path) {
            Ok(known) if known == boot => {}
            known => {
                // A file that cannot be read is not a sign of another boot.
                if known.is_ok_and(|known| !known.is_empty()) {
                    self.clear()?;
                }
                // Replaced in one step: half a boot id, left by a daemon that dies here, would look like another boot.
                let temporary = path.with_extension("new");
                let written = fs::write(&temporary, boot).and_then(|()| fs::rename(&temporary, &path));
                written.map_err(failed(format_args!("write {}", path.display())))?;
            }
        }
        for part in ["sandbox", "container", "broken"] {
            make(&self.root.join(part))?;
        }
        Ok(())
    }

    fn clear(&self) -> Result<(), Error> {
        tracing::info!("the machine was rebooted: discarding the records in {}", self.root.display());
        // What OCI runtimes recorded (`runtime`) refers to processes of the other boot, too.
        for part in ["sandbox", "container", "runtime"] {
            let part = self.root.join(part);
            match fs::remove_dir_all(&part) {
                Err(e) if e.kind() != ErrorKind::NotFound => {
                    return Err(failed(format_args!("remove {}", part.display()))(e));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

fn make(directory: &Path) -> Result<(), Error> {
    let made = DirBuilder::new().recursive(true).mode(MODE).create(directory);
    made.map_err(failed(format_args!("create {}", directory.display())))
}

fn on_tmpfs(directory: &Path) -> Result<bool, Error> {
    let statfs = rustix::fs::statfs(directory).map_err(failed(format_args!("statfs {}", directory.display())))?;
    Ok(statfs.f_type as u64 == TMPFS_MAGIC)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_discarded_after_a_reboot_and_only_then() {
        let root = tempfile::tempdir().expect("a directory");
        let directory = StateDirectory { root: root.path().to_owned() };
        let (record, boot) = (root.path().join("container/c"), root.path().join("boot_id"));
        directory.discard_other_boot().expect("new");
        let this = fs::read_to_string(&boot).expect("boot id");
        // As left by a daemon that died while it wrote the file, or by a full file system.
        for known in [this.as_str(), ""] {
            fs::create_dir_all(&record).expect("record");
            fs::write(&boot, known).expect("boot id");
            directory.discard_other_boot().expect("this boot");
            assert!(record.exists(), "boot id {known:?}");
        }
        let runtime = root.path().join("runtime/crun/c");
        fs::create_dir_all(&runtime).expect("state of a runtime");
        fs::write(&boot, "another\n").expect("boot id");
        directory.discard_other_boot().expect("another boot");
        assert!(!record.exists() && !runtime.exists());
        assert_eq!(fs::read_to_string(&boot).expect("boot id"), this);
    }
}
