//! Bind mounts: a clone of a tree of the host, or one that the caller gave.

use std::ffi::{CStr, CString};

use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{CWD, FileType, fstat},
    mount::{MountPropagationFlags, OpenTreeFlags, open_tree},
};
use syscall::mount_attributes::MountAttributes;

use crate::{Error, destination::Shape, error::During, mounts::option::Options};

/// What is bound.
#[derive(Debug)]
pub(crate) enum Source {
    /// A detached mount.
    Given(OwnedFd),
    /// A path, as the caller sees it.
    Path {
        path: CString,
        /// With what is mounted below.
        recursive: bool,
    },
}

impl Source {
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Given(fd) => Some(fd.as_fd()),
            Self::Path { .. } => None,
        }
    }

    /// In the caller, where the host's paths are: a path becomes a detached clone, which may then be attached in any
    /// namespace. As a slave it still receives what the host mounts below later.
    pub(crate) fn open(&mut self, slave: bool) -> Result<(), Error> {
        let Self::Path { path, recursive } = self else { return Ok(()) };
        let tree = clone(path, *recursive)?;
        if slave {
            let slave = MountAttributes { propagation: Some(MountPropagationFlags::DOWNSTREAM), ..Default::default() };
            slave.apply(&tree, *recursive).during(|| format!("make the clone of {path:?} a slave"))?;
        }
        *self = Self::Given(tree);
        Ok(())
    }

    /// The detached mount with its attributes, and whether it is a folder.
    pub(crate) fn make(&self, options: &Options) -> Result<(OwnedFd, Shape), Error> {
        let tree = match self {
            Self::Given(fd) => rustix::io::fcntl_dupfd_cloexec(fd, 3).during(|| "duplicate the given mount")?,
            Self::Path { path, recursive } => clone(path, *recursive)?,
        };
        if !options.own.is_empty() {
            options.own.apply(&tree, false).during(|| "set the attributes of the bind mount")?;
        }
        if !options.recursive.is_empty() {
            options.recursive.apply(&tree, true).during(|| "set the recursive attributes of the bind mount")?;
        }
        let kind = FileType::from_raw_mode(fstat(&tree).during(|| "ask what the bind source is")?.st_mode);
        Ok((tree, if kind == FileType::Directory { Shape::Folder } else { Shape::File }))
    }
}

fn clone(path: &CStr, recursive: bool) -> Result<OwnedFd, Error> {
    let mut flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    if recursive {
        flags |= OpenTreeFlags::AT_RECURSIVE;
    }
    open_tree(CWD, path, flags).during(|| format!("bind source {path:?}"))
}
