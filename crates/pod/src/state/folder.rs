//! Making the state folder fit: on tmpfs, of this boot.

use std::{
    fs::{self, DirBuilder},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use rustix::mount::{MountFlags, mount};

use super::Records;
use crate::{Error, error::failed};

const TMPFS_MAGIC: u64 = 0x0102_1994;
/// Parents of a user-namespaced pod's files must be passable, not readable.
const MODE: u32 = 0o711;

/// The state folder, ready to be used.
#[derive(Debug)]
pub(crate) struct StateFolder {
    root: PathBuf,
}

impl StateFolder {
    /// Makes the folder and its parts. Where it is not on a tmpfs, one is mounted on it.
    pub(crate) fn open(root: &Path) -> Result<Self, Error> {
        if !root.is_absolute() {
            return Err(Error::invalid(format!("state folder {}: the path is not absolute", root.display())));
        }
        make(root)?;
        if !on_tmpfs(root)? {
            tracing::info!("{} is not on a tmpfs: one is mounted there", root.display());
            let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
            mount("pinion", root, "tmpfs", flags, c"mode=0711")
                .map_err(failed(format_args!("mount a tmpfs on {}", root.display())))?;
        }
        let folder = Self { root: root.to_owned() };
        folder.void_another_boot()?;
        for part in ["sandbox", "container", "broken"] {
            make(&root.join(part))?;
        }
        Ok(folder)
    }

    /// Where pins of network namespaces are mounted.
    pub(crate) fn netns(&self) -> PathBuf {
        self.root.join("netns")
    }

    pub(crate) fn records(&self) -> Records {
        Records::new(&self.root)
    }

    /// After a reboot no process of any record lives, and their numbers belong to others.
    fn void_another_boot(&self) -> Result<(), Error> {
        let source = "/proc/sys/kernel/random/boot_id";
        let boot = fs::read_to_string(source).map_err(failed(format_args!("read {source}")))?;
        let path = self.root.join("boot_id");
        match fs::read_to_string(&path) {
            Ok(known) if known == boot => return Ok(()),
            Ok(_) => {
                tracing::info!("the machine was restarted: records of containers in {} are void", self.root.display());
                for part in ["sandbox", "container"] {
                    let part = self.root.join(part);
                    fs::remove_dir_all(&part).map_err(failed(format_args!("remove {}", part.display())))?;
                }
            }
            Err(_) => {}
        }
        fs::write(&path, boot).map_err(failed(format_args!("write {}", path.display())))
    }
}

fn make(folder: &Path) -> Result<(), Error> {
    let made = DirBuilder::new().recursive(true).mode(MODE).create(folder);
    made.map_err(failed(format_args!("create {}", folder.display())))
}

fn on_tmpfs(folder: &Path) -> Result<bool, Error> {
    let about = rustix::fs::statfs(folder).map_err(failed(format_args!("statfs {}", folder.display())))?;
    Ok(about.f_type as u64 == TMPFS_MAGIC)
}
