//! Making the state directory fit: on tmpfs, of this boot.

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
use syscall::file_lock::lock_within;

use super::Records;
use crate::{Error, error::failed};

const TMPFS_MAGIC: u64 = 0x0102_1994;
/// Parents of a user-namespaced pod's files must be passable, not readable.
const MODE: u32 = 0o711;
/// How long a daemon that was ended may still have the directory.
const ENDING: Duration = Duration::from_secs(5);

/// The state directory, ready to be used.
#[derive(Debug)]
pub(crate) struct StateDirectory {
    root: PathBuf,
}

impl StateDirectory {
    /// Makes the directory and its parts. Where it is not on a tmpfs, one is mounted on it.
    pub(crate) fn open(root: &Path) -> Result<Self, Error> {
        if !root.is_absolute() {
            return Err(Error::invalid(format!("state directory {}: the path is not absolute", root.display())));
        }
        make(root)?;
        if !on_tmpfs(root)? {
            tracing::info!("{} is not on a tmpfs: one is mounted there", root.display());
            let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
            mount("pinion", root, "tmpfs", flags, c"mode=0711")
                .map_err(failed(format_args!("mount a tmpfs on {}", root.display())))?;
        }
        Ok(Self { root: root.to_owned() })
    }

    /// Keeps other daemons from this directory for as long as the descriptor is open. One that is just ending is waited
    /// for.
    pub(crate) fn lock(&self) -> Result<OwnedFd, Error> {
        let path = self.root.join("lock");
        let told = format!("lock {}", path.display());
        let file = OpenOptions::new().create(true).append(true).open(&path).map_err(failed(&told))?;
        match lock_within(&file, ENDING) {
            Ok(()) => Ok(file.into()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                Err(Error::state(format!("{told}: another daemon works on this state directory")))
            }
            Err(error) => Err(failed(told)(error)),
        }
    }

    /// Where pins of network namespaces are mounted.
    pub(crate) fn netns(&self) -> PathBuf {
        self.root.join("netns")
    }

    pub(crate) fn records(&self) -> Records {
        Records::new(&self.root)
    }

    /// After a reboot no process of any record lives, and their numbers belong to others. Makes the parts that are
    /// missing.
    pub(crate) fn void_another_boot(&self) -> Result<(), Error> {
        let source = "/proc/sys/kernel/random/boot_id";
        let boot = fs::read_to_string(source).map_err(failed(format_args!("read {source}")))?;
        let path = self.root.join("boot_id");
        match fs::read_to_string(&path) {
            Ok(known) if known == boot => {}
            known => {
                // One that cannot be read says nothing of another boot.
                if known.is_ok_and(|known| !known.is_empty()) {
                    self.clear()?;
                }
                // In one step: a daemon that dies here must not leave half of it, which would be another boot's.
                let beside = path.with_extension("new");
                let written = fs::write(&beside, boot).and_then(|()| fs::rename(&beside, &path));
                written.map_err(failed(format_args!("write {}", path.display())))?;
            }
        }
        for part in ["sandbox", "container", "broken"] {
            make(&self.root.join(part))?;
        }
        Ok(())
    }

    fn clear(&self) -> Result<(), Error> {
        tracing::info!("the machine was restarted: records of containers in {} are void", self.root.display());
        for part in ["sandbox", "container"] {
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
    let about = rustix::fs::statfs(directory).map_err(failed(format_args!("statfs {}", directory.display())))?;
    Ok(about.f_type as u64 == TMPFS_MAGIC)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_void_after_another_boot_and_no_other_time() {
        let root = tempfile::tempdir().expect("a directory");
        let directory = StateDirectory { root: root.path().to_owned() };
        let (record, boot) = (root.path().join("container/c"), root.path().join("boot_id"));
        directory.void_another_boot().expect("new");
        let this = fs::read_to_string(&boot).expect("boot id");
        // As a daemon left it that died while it wrote, or a file system that was full.
        for known in [this.as_str(), ""] {
            fs::create_dir_all(&record).expect("record");
            fs::write(&boot, known).expect("boot id");
            directory.void_another_boot().expect("this boot");
            assert!(record.exists(), "boot id {known:?}");
        }
        fs::write(&boot, "another\n").expect("boot id");
        directory.void_another_boot().expect("another boot");
        assert!(!record.exists());
        assert_eq!(fs::read_to_string(&boot).expect("boot id"), this);
    }
}
