//! Removes a group with its descendants in one post-order pass of bounded steps, so that an event loop can do other
//! work in between, however many groups a container has created and however deep they are.

use std::mem::MaybeUninit;

use rustix::{
    fd::OwnedFd,
    fs::{AtFlags, FileType, Mode, OFlags, RawDir, openat, unlinkat},
    io::Errno,
};

use crate::{Error, Group, controller::Controller, thaw::thaw_one, tree::Tree, wait::Wait};

/// How long killed processes may take to exit.
const REMOVE_SECONDS: u64 = 5;
/// The number of operations in one step if the caller blocks anyway.
const STEP: usize = 1024;

/// The status of a [`Removal`] after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemovalStatus {
    /// The next step can be done immediately.
    Pending,
    /// A group contains a process, or one that is exiting: try again later.
    Busy,
    /// The group does not exist anymore.
    Done,
}

/// A removal in progress: rmdir of a group and all its descendants, in every tree.
///
/// It holds one descriptor and a constant amount of memory, however many groups there are: it returns to the parent by
/// `..`, which cannot lead out of the group, because the kernel does not move groups to another parent.
#[derive(Debug)]
pub struct Removal {
    group: Group,
    /// The number of trees that are done.
    trees: usize,
    /// The current position; `None` before the first or after the last group.
    position: Option<Position>,
    /// The number of groups that were removed.
    removed: u64,
}

/// The position of a removal.
#[derive(Debug)]
struct Position {
    /// A group that cannot be removed before its children.
    dir: OwnedFd,
    /// The depth below the group to remove.
    depth: u64,
    /// Whether a child was removed since the group was entered.
    progressed: bool,
}

/// The flags with which groups are opened.
const DIRECTORY_FLAGS: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC).union(OFlags::NOFOLLOW);

impl Group {
    /// Starts a removal, for callers that must not block. The processes must have been killed. For a group of a systemd
    /// unit the unit is stopped first, which blocks.
    ///
    /// # Errors
    /// Stopping the unit failed.
    pub fn removal(self) -> Result<Removal, Error> {
        if let Some(unit) = self.unit.as_ref().filter(|_| self.sub.is_none()) {
            unit.stop()?;
        }
        Ok(Removal { group: self, trees: 0, position: None, removed: 0 })
    }

    /// Removes the group and its descendants in every tree. A group that does not exist is not an error. Waits for
    /// killed processes to exit, at most 5 s after the last group that could be removed; an error names a process that
    /// is still in the group, which is kept then. For a group of a systemd unit the unit is stopped first.
    pub fn remove(self) -> Result<(), Error> {
        let mut removal = self.removal()?;
        let mut wait: Option<(Wait, u64)> = None;
        loop {
            if let Some((wait, _)) = &wait {
                wait.arm();
            }
            match removal.step(STEP)? {
                RemovalStatus::Done => return Ok(()),
                RemovalStatus::Pending => continue,
                RemovalStatus::Busy => {}
            }
            // The first retry is immediate: opening the file for the wait takes as long as the exit of most processes.
            match &mut wait {
                Some((wait, removed)) if *removed == removal.removed => {
                    if !wait.next() {
                        return Err(removal.timeout_error());
                    }
                }
                _ => wait = Some((Wait::new(&removal.group, REMOVE_SECONDS), removal.removed)),
            }
        }
    }
}

impl Removal {
    /// Returns the group.
    pub fn group(&self) -> &Group {
        &self.group
    }

    /// Gives up the removal and returns the group.
    pub fn into_group(self) -> Group {
        self.group
    }

    /// Returns the number of groups that were removed so far.
    pub fn removed(&self) -> u64 {
        self.removed
    }

    /// Continues the removal: enters or removes at most `limit` groups. Does not block.
    ///
    /// # Errors
    /// Those of rmdir(2), except for a group in use.
    pub fn step(&mut self, limit: usize) -> Result<RemovalStatus, Error> {
        let Self { group, trees: done, position, removed } = self;
        let mut budget = limit;
        for tree in ordered_trees(group).into_iter().skip(*done) {
            let path = group.path_in(tree).relative();
            let outcome = step_in(tree, path, position, removed, &mut budget);
            match outcome.map_err(|errno| Error::io("rmdir", tree.describe(path), errno))? {
                RemovalStatus::Done => *done += 1,
                other => return Ok(other),
            }
        }
        Ok(RemovalStatus::Done)
    }

    /// Returns the error of a removal that was given up.
    pub fn timeout_error(&self) -> Error {
        let tree = ordered_trees(&self.group).into_iter().nth(self.trees);
        let path = match tree {
            Some(tree) => tree.describe(self.group.path_in(tree).relative()),
            None => self.group.path().to_string(),
        };
        Error::Timeout { operation: "remove", path, seconds: REMOVE_SECONDS, detail: self.group.first_process() }
    }
}

/// Returns the trees of a group, the v1 freezer first: processes that a container has frozen there prevent the removal
/// in all trees.
fn ordered_trees(group: &Group) -> Vec<&Tree> {
    let mut trees: Vec<&Tree> = group.trees_with_directory().collect();
    trees.sort_by_key(|tree| tree.v2 || !tree.controllers.has(Controller::Freezer));
    trees
}

/// Continues the removal in one tree.
fn step_in(
    tree: &Tree,
    path: &str,
    position: &mut Option<Position>,
    removed: &mut u64,
    budget: &mut usize,
) -> Result<RemovalStatus, Errno> {
    let freezer = !tree.v2 && tree.controllers.has(Controller::Freezer);
    while *budget > 0 {
        *budget -= 1;
        let Some(mut current) = position.take() else {
            match tree.rmdir(path) {
                Ok(()) => {
                    *removed += 1;
                    return Ok(RemovalStatus::Done);
                }
                Err(Errno::NOENT) => return Ok(RemovalStatus::Done),
                Err(Errno::BUSY | Errno::NOTEMPTY) => {}
                Err(errno) => return Err(errno),
            }
            let dir = enter(tree.open_dir(path), freezer)?;
            *position = dir.map(|dir| Position { dir, depth: 0, progressed: false });
            continue;
        };
        let before = *removed;
        let outcome = remove_children(&current.dir, removed, budget)?;
        current.progressed |= *removed > before;
        *position = match outcome {
            Children::Unknown => Some(current),
            Children::Blocking(child) => match enter(child, freezer)? {
                Some(dir) => Some(Position { dir, depth: current.depth + 1, progressed: false }),
                None => Some(current),
            },
            // The group has no children and could not be removed: it contains a process.
            Children::None if !current.progressed => return Ok(RemovalStatus::Busy),
            Children::None if current.depth == 0 => None,
            Children::None => match openat(&current.dir, c"..", DIRECTORY_FLAGS, Mode::empty()) {
                Ok(dir) => Some(Position { dir, depth: current.depth - 1, progressed: true }),
                // The group was removed with its ancestors: start again from the top.
                Err(Errno::NOENT) => None,
                Err(errno) => return Err(errno),
            },
        };
    }
    Ok(RemovalStatus::Pending)
}

/// The children of a group after [`remove_children`].
enum Children {
    /// No children are left.
    None,
    /// This child, opened, cannot be removed before its own children.
    Blocking(Result<OwnedFd, Errno>),
    /// The limit of the step was reached.
    Unknown,
}

/// Removes the children, up to the first that cannot be removed.
fn remove_children(dir: &OwnedFd, removed: &mut u64, budget: &mut usize) -> Result<Children, Errno> {
    rustix::fs::seek(dir, rustix::fs::SeekFrom::Start(0))?;
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut entries = RawDir::new(dir, &mut buffer);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name();
        if entry.file_type() != FileType::Directory || name == c"." || name == c".." {
            continue;
        }
        if *budget == 0 {
            return Ok(Children::Unknown);
        }
        *budget -= 1;
        match unlinkat(dir, name, AtFlags::REMOVEDIR) {
            Ok(()) => *removed += 1,
            Err(Errno::NOENT) => {}
            Err(Errno::BUSY | Errno::NOTEMPTY) => {
                return Ok(Children::Blocking(openat(dir, name, DIRECTORY_FLAGS, Mode::empty())));
            }
            Err(errno) => return Err(errno),
        }
    }
    Ok(Children::None)
}

/// Enters a group; returns `None` if it does not exist anymore. Thaws it in the v1 freezer, as processes that a
/// container has frozen there cannot exit before.
fn enter(opened: Result<OwnedFd, Errno>, freezer: bool) -> Result<Option<OwnedFd>, Errno> {
    let dir = match opened {
        Err(Errno::NOENT | Errno::NODEV) => return Ok(None),
        opened => opened?,
    };
    if freezer {
        thaw_one(&dir);
    }
    Ok(Some(dir))
}
