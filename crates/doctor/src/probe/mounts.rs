//! An overlay and an id-mapped mount on the file system of `data_dir`. Both are detached: no process sees them.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{CWD, Dir, FileType, Mode, OFlags, open},
    mount::{
        FsMountFlags, FsOpenFlags, MountAttrFlags, OpenTreeFlags, fsconfig_create, fsconfig_set_string, fsmount,
        fsopen, open_tree,
    },
};

use super::Outcome;

pub(super) struct Mounts {
    pub(super) overlay: Outcome,
    pub(super) id_map: Outcome,
    pub(super) file_types: Outcome,
}

/// A directory that is removed when it is dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn create(parent: &Path) -> io::Result<Self> {
        let scratch = Self(parent.join(format!(".pinion-doctor-{}", std::process::id())));
        fs::create_dir(&scratch.0)?;
        for name in ["lower", "upper", "work"] {
            fs::create_dir(scratch.0.join(name))?;
        }
        Ok(scratch)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Root's own directory with nothing but what the probe made. If it cannot be removed, it stays, empty.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Tries mounts of directories in `parent`.
pub(super) fn probe(parent: &Path, namespace: Option<&OwnedFd>) -> Mounts {
    let scratch = match Scratch::create(parent) {
        Ok(scratch) => scratch,
        Err(error) => {
            let reason = || Outcome::NotTried(format!("create a directory in {}: {error}", parent.display()));
            return Mounts { overlay: reason(), id_map: reason(), file_types: reason() };
        }
    };
    Mounts {
        overlay: Outcome::of(overlay(&scratch.0)),
        id_map: match namespace {
            Some(namespace) => Outcome::of(id_map(&scratch.0.join("lower"), namespace)),
            None => Outcome::NotTried("no user namespace could be created".into()),
        },
        file_types: file_types(&scratch.0),
    }
}

fn overlay(dir: &Path) -> io::Result<OwnedFd> {
    let overlay = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (option, name) in [("lowerdir", "lower"), ("upperdir", "upper"), ("workdir", "work")] {
        fsconfig_set_string(overlay.as_fd(), option, dir.join(name))?;
    }
    fsconfig_create(overlay.as_fd())?;
    Ok(fsmount(overlay.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?)
}

fn id_map(dir: &Path, namespace: &OwnedFd) -> io::Result<()> {
    let tree = open_tree(CWD, dir, OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC)?;
    syscall::idmapped_mount::map_ids(&tree, namespace, false)
}

fn file_types(dir: &Path) -> Outcome {
    let types = open(dir, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .and_then(Dir::new)
        .and_then(|mut entries| entries.next().transpose())
        .map(|entry| entry.map(|entry| entry.file_type()));
    match types {
        Ok(Some(FileType::Unknown)) => Outcome::Fails("readdir returns no types of files".into()),
        Ok(_) => Outcome::Works,
        Err(error) => Outcome::NotTried(error.to_string()),
    }
}
