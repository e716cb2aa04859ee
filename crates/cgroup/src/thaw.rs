//! Thaws every v1 freezer group below a group, in bounded steps. Root in a container can mount the v1 freezer, move its
//! processes into a nested group and freeze that; SIGKILL does not end them before they are thawed, and thawing the top
//! group does not thaw a nested group that was frozen itself.

use std::mem::MaybeUninit;

use rustix::{
    fd::OwnedFd,
    fs::{FileType, Mode, OFlags, RawDir, SeekFrom, fstat, openat, seek},
    io::Errno,
};

use crate::{Error, Group, controller::Controller, tree::write_once};

/// How groups are opened.
const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC).union(OFlags::NOFOLLOW);
/// Bytes of a directory that are read at once.
const BUFFER: usize = 4096;

/// A depth-first pass over the v1 freezer groups below a group that removes nothing.
///
/// It holds two descriptors, and eight bytes for each level that it has descended.
#[derive(Debug)]
pub struct ThawBelow {
    top: OwnedFd,
    /// For messages.
    path: String,
    /// `None`: at the start.
    place: Option<Place>,
}

/// Where the pass is.
#[derive(Debug)]
struct Place {
    dir: OwnedFd,
    /// Where in its parent each group was found from which the pass descended.
    parents: Vec<u64>,
    /// Position in `dir` of the entry that is read next.
    position: u64,
    /// The inode of the group from which the pass came back up: entries up to this one were visited.
    skip_past: Option<u64>,
    /// Whether `dir` has been read from its start.
    from_start: bool,
}

/// What [`Place::next_child`] came upon.
enum Next {
    Child {
        dir: OwnedFd,
        position: u64,
    },
    End,
    /// The step is over.
    StepOver,
}

impl Group {
    /// The pass over the v1 freezer groups below this group; for a group of [`Group::exec_group`], below its
    /// container's, where its processes are. `None`: there is no v1 freezer, or no such group in it.
    pub fn thaw_below(&self) -> Option<ThawBelow> {
        let tree = self.trees.with(Controller::Freezer).filter(|tree| !tree.v2)?;
        let path = self.place(tree).relative();
        let top = tree.open_dir(path).ok()?;
        Some(ThawBelow { top, path: tree.describe(path), place: None })
    }
}

impl ThawBelow {
    /// Continues the pass, for at most `most` groups. Whether it is complete. Never waits. A group that goes while the
    /// pass is in it starts the pass again.
    ///
    /// # Errors
    /// Those of reading a directory.
    pub fn step(&mut self, most: usize) -> Result<bool, Error> {
        self.try_step(most).map_err(|errno| Error::io("thaw groups below", self.path.clone(), errno))
    }

    fn try_step(&mut self, most: usize) -> Result<bool, Errno> {
        let mut left = most;
        while left > 0 {
            left -= 1;
            let mut place = match self.place.take() {
                Some(place) => place,
                None => Place::new(openat(&self.top, c".", DIRECTORY, Mode::empty())?),
            };
            self.place = match place.next_child(&mut left)? {
                Next::StepOver => Some(place),
                Next::Child { dir, position } => {
                    thaw_one(&dir);
                    place.descend(dir, position);
                    Some(place)
                }
                // Names of equal hash may be listed in another order after a seek.
                Next::End if place.skip_past.is_some() && !place.from_start => {
                    place.rewind()?;
                    Some(place)
                }
                // The group that the pass was in has gone.
                Next::End if place.skip_past.is_some() => None,
                Next::End => match place.parents.pop() {
                    Some(position) => place.ascend(position)?,
                    None => return Ok(true),
                },
            };
        }
        Ok(false)
    }
}

impl Place {
    fn new(dir: OwnedFd) -> Self {
        Self { dir, parents: Vec::new(), position: 0, skip_past: None, from_start: true }
    }

    /// Opens the next group right below this one.
    fn next_child(&mut self, left: &mut usize) -> Result<Next, Errno> {
        let mut buffer = [MaybeUninit::uninit(); BUFFER];
        let mut entries = RawDir::new(&self.dir, &mut buffer);
        loop {
            if entries.is_buffer_empty() {
                if *left == 0 {
                    return Ok(Next::StepOver);
                }
                *left -= 1;
            }
            let Some(entry) = entries.next() else { return Ok(Next::End) };
            let entry = entry?;
            let position = std::mem::replace(&mut self.position, entry.next_entry_cookie());
            let name = entry.file_name();
            if entry.file_type() != FileType::Directory || name == c"." || name == c".." {
                continue;
            }
            if let Some(inode) = self.skip_past {
                self.skip_past = Some(inode).filter(|inode| *inode != entry.ino());
                continue;
            }
            match openat(&self.dir, name, DIRECTORY, Mode::empty()) {
                Ok(dir) => return Ok(Next::Child { dir, position }),
                Err(Errno::NOENT | Errno::NODEV) => {}
                Err(errno) => return Err(errno),
            }
        }
    }

    fn descend(&mut self, dir: OwnedFd, position: u64) {
        let mut parents = std::mem::take(&mut self.parents);
        parents.push(position);
        *self = Self { parents, ..Self::new(dir) };
    }

    /// `None`: the group was removed.
    fn ascend(self, position: u64) -> Result<Option<Self>, Errno> {
        let inode = fstat(&self.dir)?.st_ino;
        let dir = match openat(&self.dir, c"..", DIRECTORY, Mode::empty()) {
            Err(Errno::NOENT | Errno::NODEV) => return Ok(None),
            dir => dir?,
        };
        seek(&dir, SeekFrom::Start(position))?;
        let from_start = position == 0;
        Ok(Some(Self { dir, parents: self.parents, position, skip_past: Some(inode), from_start }))
    }

    fn rewind(&mut self) -> Result<(), Errno> {
        seek(&self.dir, SeekFrom::Start(0))?;
        (self.position, self.from_start) = (0, true);
        Ok(())
    }
}

/// Thaws what was frozen in this group. One that is gone is fine.
pub(crate) fn thaw_one(dir: &OwnedFd) {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    if let Ok(file) = openat(dir, c"freezer.state", flags, Mode::empty()) {
        let _ = write_once(&file, "THAWED");
    }
}
