use std::path::{Path, PathBuf};

use rustix::fd::OwnedFd;

use crate::{failure::Failure, state::Record};

/// `<root>/<id>` of a container that exists.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
}

impl Folder {
    /// Makes it for a new container; an existing one is an error.
    pub(crate) fn create(_root: &Path, _id: &str) -> Result<Self, Failure> {
        todo!()
    }

    /// Finds the container's; none is the error `container does not exist`.
    pub(crate) fn open(_root: &Path, _id: &str) -> Result<Self, Failure> {
        todo!()
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the record.
    pub(crate) fn load(&self) -> Result<Record, Failure> {
        todo!()
    }

    /// Writes the record, beside and renamed.
    pub(crate) fn save(&self, _record: &Record) -> Result<(), Failure> {
        todo!()
    }

    /// The compiled filter that commands get too.
    pub(crate) fn seccomp(&self) -> Result<Option<seccomp::Program>, Failure> {
        todo!()
    }

    /// Removes all of it.
    pub(crate) fn remove(self) -> Result<(), Failure> {
        todo!()
    }
}

impl Record {
    /// Whether the container is created, running, paused or stopped, as the kernel says.
    pub(crate) fn status(&self, _folder: &Folder) -> Result<oci::Status, Failure> {
        todo!()
    }

    /// The pidfd of its init; `None`: it has ended.
    pub(crate) fn init(&self) -> Result<Option<OwnedFd>, Failure> {
        todo!()
    }

    /// Its group.
    pub(crate) fn group(&self) -> Result<cgroup::Group, Failure> {
        todo!()
    }

    /// As `state` prints it and hooks read it.
    pub(crate) fn state(&self, _status: oci::Status) -> oci::State {
        todo!()
    }
}
