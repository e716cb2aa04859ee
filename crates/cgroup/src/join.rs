use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::OFlags,
};

use crate::{
    Error, Group,
    controller::Controller,
    tree::{Tree, write_once},
};

/// The descriptors by which a child joins a group without waiting for an RCU grace period: the v1 `tasks` files, to
/// which the child itself writes `0`, and the v2 directory for `clone3(CLONE_INTO_CGROUP)` (Linux 5.7). Every other way
/// (`cgroup.procs`, or a parent that writes the pid) takes the kernel's lock for migrating whole processes
/// (cgroup_threadgroup_rwsem) and waits 4 to 10 ms for a grace period on an idle machine.
///
/// The child must have a single thread: `tasks` moves the thread that writes. The default value joins nothing: for a
/// child that is moved by another process (systemd).
#[derive(Debug, Default)]
pub struct Joiner {
    /// The v2 directory (`O_PATH`), if there is a v2 tree.
    pub v2: Option<OwnedFd>,
    early: Vec<Entry>,
    memory: Option<Entry>,
}

#[derive(Debug)]
struct Entry {
    tasks: OwnedFd,
    /// The name of the file, for error messages.
    name: String,
}

impl Entry {
    fn open(group: &Group, tree: &Tree) -> Result<Self, Error> {
        let path = group.file(tree, "tasks");
        let tasks = tree.open(&path, OFlags::WRONLY).map_err(|e| Error::io("open", tree.describe(&path), e))?;
        Ok(Self { tasks, name: tree.describe(&path) })
    }

    fn join(&self) -> Result<(), Error> {
        write_once(&self.tasks, "0").map_err(|errno| Error::io("write \"0\" to", self.name.clone(), errno))
    }
}

impl Group {
    /// Opens the files that a child needs to join the group. All descriptors are close-on-exec.
    pub fn joiner(&self) -> Result<Joiner, Error> {
        let mut joiner = Joiner { v2: None, early: Vec::new(), memory: None };
        for tree in self.trees.trees() {
            if tree.v2 {
                let path = self.path_in(tree).relative();
                let dir = tree.open(path, OFlags::PATH | OFlags::DIRECTORY);
                joiner.v2 = Some(dir.map_err(|e| Error::io("open", tree.describe(path), e))?);
            } else if tree.controllers.has(Controller::Memory) {
                joiner.memory = Some(Entry::open(self, tree)?);
            } else {
                joiner.early.push(Entry::open(self, tree)?);
            }
        }
        Ok(joiner)
    }
}

impl Drop for Joiner {
    fn drop(&mut self) {
        let entries = std::mem::take(&mut self.early).into_iter().chain(self.memory.take());
        syscall::descriptors::close_all(entries.map(|entry| entry.tasks).chain(self.v2.take()).collect());
    }
}

impl Joiner {
    /// Returns the directory for `CLONE_INTO_CGROUP`, or `None` without a v2 tree.
    pub fn v2_dir(&self) -> Option<BorrowedFd<'_>> {
        self.v2.as_ref().map(AsFd::as_fd)
    }

    /// Joins every v1 tree but memory's. To be called in the child.
    pub fn join_early(&self) -> Result<(), Error> {
        self.early.iter().try_for_each(Entry::join)
    }

    /// Joins the v1 memory tree. To be called in the child just before execve, so that the memory of the setup is not
    /// charged to the container. In a v2 tree with controllers the child is in the group since its clone, and this does
    /// nothing.
    pub fn join_memory(&self) -> Result<(), Error> {
        self.memory.iter().try_for_each(Entry::join)
    }

    /// Returns the descriptor that [`Joiner::join_memory`] uses.
    pub fn memory_descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.memory.as_ref().map(|entry| entry.tasks.as_fd())
    }

    /// Returns all descriptors, for a child that must exclude them from `close_range`.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let tasks = self.early.iter().chain(&self.memory).map(|entry| entry.tasks.as_fd());
        tasks.chain(self.v2.as_ref().map(AsFd::as_fd))
    }
}
