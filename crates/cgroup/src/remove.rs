//! Removal of a group with all below it: one post-order pass in bounded steps, so that an event loop can do other work
//! in between, however many groups a container made and however deep.

use std::mem::MaybeUninit;

use rustix::{
    fd::OwnedFd,
    fs::{AtFlags, FileType, Mode, OFlags, RawDir, openat, unlinkat},
    io::Errno,
};

use crate::{Error, Group, controller::Controller, thaw::thaw_one, tree::Tree, wait::Wait};

/// How long killed processes may take to be gone.
const REMOVE_SECONDS: u64 = 5;
/// Operations of one step where the caller blocks anyway.
const STEP: usize = 1024;

/// How far a [`Removal`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removing {
    /// There is more to do at once.
    Pending,
    /// A process is in a group, or ends just now: to be tried again later.
    Busy,
    /// Nothing of the group is there any more.
    Done,
}

/// A removal on its way: rmdir of all groups below a group and of itself, in every tree.
///
/// It holds one descriptor and no memory for what a container made: the way up is `..`, which cannot lead out of the
/// group, because the kernel moves no group to another parent.
#[derive(Debug)]
pub struct Removal {
    group: Group,
    /// How many of the group's trees are done.
    trees: usize,
    /// `None`: before the first, or after the last group.
    at: Option<Place>,
    /// How many groups were removed.
    removed: u64,
}

/// Where a removal is.
#[derive(Debug)]
struct Place {
    /// A group that could not be removed as it was.
    dir: OwnedFd,
    /// How deep it is below the group to remove.
    depth: u64,
    /// Whether one below it was removed since it was entered.
    fruitful: bool,
}

/// How groups are opened.
const DIRECTORY_FLAGS: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC).union(OFlags::NOFOLLOW);

impl Group {
    /// Starts a removal, for callers that must not block. The processes must have been killed; a group of a systemd
    /// unit is ended by systemd first, and that blocks.
    ///
    /// # Errors
    /// Those of systemd.
    pub fn removal(self) -> Result<Removal, Error> {
        if let Some(unit) = self.unit.as_ref().filter(|_| self.sub.is_none()) {
            unit.stop()?;
        }
        Ok(Removal { group: self, trees: 0, at: None, removed: 0 })
    }

    /// rmdir of all groups below and of itself, in every tree. A group that is not there is fine. Processes that were
    /// killed just now are waited for, at most 5 s after the last group that could be removed; one that lives on is an
    /// error that names it, and the group stays. One of a systemd unit is ended by systemd first.
    pub fn remove(self) -> Result<(), Error> {
        let mut removal = self.removal()?;
        let mut wait: Option<(Wait, u64)> = None;
        loop {
            if let Some((wait, _)) = &wait {
                wait.arm();
            }
            match removal.step(STEP)? {
                Removing::Done => return Ok(()),
                Removing::Pending => continue,
                Removing::Busy => {}
            }
            // The first time at once: opening the file to wait on takes as long as most processes need to go.
            match &mut wait {
                Some((wait, removed)) if *removed == removal.removed => {
                    if !wait.next() {
                        return Err(removal.still_used());
                    }
                }
                _ => wait = Some((Wait::new(&removal.group, REMOVE_SECONDS), removal.removed)),
            }
        }
    }
}

impl Removal {
    /// The group.
    pub fn group(&self) -> &Group {
        &self.group
    }

    /// The group, when the removal is given up.
    pub fn into_group(self) -> Group {
        self.group
    }

    /// How many groups were removed so far.
    pub fn removed(&self) -> u64 {
        self.removed
    }

    /// Goes on with the pass: at most `most` groups are entered or removed. Never waits.
    ///
    /// # Errors
    /// Those of rmdir(2) but for a group in use.
    pub fn step(&mut self, most: usize) -> Result<Removing, Error> {
        let Self { group, trees: done, at, removed } = self;
        let mut left = most;
        for tree in trees_of(group).into_iter().skip(*done) {
            let path = group.place(tree).relative();
            let outcome = step_in(tree, path, at, removed, &mut left);
            match outcome.map_err(|errno| Error::io("rmdir", tree.describe(path), errno))? {
                Removing::Done => *done += 1,
                other => return Ok(other),
            }
        }
        Ok(Removing::Done)
    }

    /// The error of one that was given up.
    pub fn still_used(&self) -> Error {
        let tree = trees_of(&self.group).into_iter().nth(self.trees);
        let path =
            tree.map_or_else(|| self.group.path().to_string(), |tree| tree.describe(self.group.place(tree).relative()));
        Error::Late { operation: "remove", path, seconds: REMOVE_SECONDS, detail: self.group.first_process() }
    }
}

/// The v1 freezer first: what a container froze there is in the way in all trees.
fn trees_of(group: &Group) -> Vec<&Tree> {
    let mut trees: Vec<&Tree> = group.own_trees().collect();
    trees.sort_by_key(|tree| tree.v2 || !tree.controllers.has(Controller::Freezer));
    trees
}

/// Goes on in one tree.
fn step_in(
    tree: &Tree,
    path: &str,
    at: &mut Option<Place>,
    removed: &mut u64,
    left: &mut usize,
) -> Result<Removing, Errno> {
    let freezer = !tree.v2 && tree.controllers.has(Controller::Freezer);
    while *left > 0 {
        *left -= 1;
        let Some(mut place) = at.take() else {
            match tree.rmdir(path) {
                Ok(()) => {
                    *removed += 1;
                    return Ok(Removing::Done);
                }
                Err(Errno::NOENT) => return Ok(Removing::Done),
                Err(Errno::BUSY | Errno::NOTEMPTY) => {}
                Err(errno) => return Err(errno),
            }
            *at = enter(tree.open_dir(path), freezer)?.map(|dir| Place { dir, depth: 0, fruitful: false });
            continue;
        };
        let before = *removed;
        let outcome = remove_children(&place.dir, removed, left)?;
        place.fruitful |= *removed > before;
        *at = match outcome {
            Children::Unknown => Some(place),
            Children::InTheWay(child) => match enter(child, freezer)? {
                Some(dir) => Some(Place { dir, depth: place.depth + 1, fruitful: false }),
                None => Some(place),
            },
            // Nothing was below it, and it could not be removed: a process is in it.
            Children::None if !place.fruitful => return Ok(Removing::Busy),
            Children::None if place.depth == 0 => None,
            Children::None => match openat(&place.dir, c"..", DIRECTORY_FLAGS, Mode::empty()) {
                Ok(dir) => Some(Place { dir, depth: place.depth - 1, fruitful: true }),
                // It was removed with all above it: from the start.
                Err(Errno::NOENT) => None,
                Err(errno) => return Err(errno),
            },
        };
    }
    Ok(Removing::Pending)
}

/// What is below a group.
enum Children {
    /// No group any more.
    None,
    /// This one, opened, cannot be removed as it is.
    InTheWay(Result<OwnedFd, Errno>),
    /// The step is over.
    Unknown,
}

/// Removes the groups right below, up to the first that cannot be.
fn remove_children(dir: &OwnedFd, removed: &mut u64, left: &mut usize) -> Result<Children, Errno> {
    rustix::fs::seek(dir, rustix::fs::SeekFrom::Start(0))?;
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut entries = RawDir::new(dir, &mut buffer);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name();
        if entry.file_type() != FileType::Directory || name == c"." || name == c".." {
            continue;
        }
        if *left == 0 {
            return Ok(Children::Unknown);
        }
        *left -= 1;
        match unlinkat(dir, name, AtFlags::REMOVEDIR) {
            Ok(()) => *removed += 1,
            Err(Errno::NOENT) => {}
            Err(Errno::BUSY | Errno::NOTEMPTY) => {
                return Ok(Children::InTheWay(openat(dir, name, DIRECTORY_FLAGS, Mode::empty())));
            }
            Err(errno) => return Err(errno),
        }
    }
    Ok(Children::None)
}

/// `None`: it is gone. What a container froze by itself (v1) cannot end before it is thawed.
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
