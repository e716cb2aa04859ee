use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::OFlags,
};

use crate::{
    Error, Group,
    controller::Controller,
    tree::{Tree, write_once},
};

/// What a child needs to join a group without ever waiting for RCU: the v1 `tasks` files, into which the child itself
/// writes `0`, and the v2 directory for `clone3(CLONE_INTO_CGROUP)` (kernel 5.7+). Every other way (`cgroup.procs`, or
/// a parent that writes the pid) takes the kernel's lock for moving whole processes and waits 4 to 10 ms for a grace
/// period on a machine at rest.
///
/// A child that joins this way must have one thread: `tasks` moves the thread that writes. The default one joins
/// nothing: for a child that somebody else (systemd) moves.
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
    /// For messages.
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
    /// Opens what a child needs to join. All descriptors are close-on-exec.
    pub fn joiner(&self) -> Result<Joiner, Error> {
        let mut joiner = Joiner { v2: None, early: Vec::new(), memory: None };
        for tree in self.trees.trees() {
            if tree.v2 {
                let path = self.place(tree).relative();
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
    /// For `CLONE_INTO_CGROUP`; `None` where there is no v2 tree.
    pub fn v2_dir(&self) -> Option<BorrowedFd<'_>> {
        self.v2.as_ref().map(AsFd::as_fd)
    }

    /// In the child: every v1 tree but memory's.
    pub fn join_early(&self) -> Result<(), Error> {
        self.early.iter().try_for_each(Entry::join)
    }

    /// In the child, just before execve: memory, so that what the set-up needed is not counted against the container's
    /// limit. In a v2 tree with controllers the child is there since its clone, and this does nothing.
    pub fn join_memory(&self) -> Result<(), Error> {
        self.memory.iter().try_for_each(Entry::join)
    }

    /// What [`Joiner::join_memory`] needs.
    pub fn memory_descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.memory.as_ref().map(|entry| entry.tasks.as_fd())
    }

    /// All descriptors, for a child that must keep them through `close_range`.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let tasks = self.early.iter().chain(&self.memory).map(|entry| entry.tasks.as_fd());
        tasks.chain(self.v2.as_ref().map(AsFd::as_fd))
    }
}
