//! Thaws all v1 freezer groups below a group, in bounded steps. Root in a container can mount the v1 freezer, move its
//! processes into a nested group and freeze that; SIGKILL does not kill them before they are thawed, and thawing the
//! group does not thaw a nested group that was frozen itself.

use std::mem::MaybeUninit;

use rustix::{
    fd::OwnedFd,
    fs::{FileType, Mode, OFlags, RawDir, SeekFrom, fstat, openat, seek},
    io::Errno,
};

use crate::{Error, Group, controller::Controller, tree::write_once};

/// The flags with which groups are opened.
const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC).union(OFlags::NOFOLLOW);
/// Bytes of directory entries that are read at once.
const BUFFER: usize = 4096;

/// A depth-first pass over the v1 freezer groups below a group, which thaws but does not remove them.
///
/// It holds two descriptors, and eight bytes for each level that it has descended.
#[derive(Debug)]
pub struct ThawDescendants {
    top: OwnedFd,
    /// The path of the group, for error messages.
    path: String,
    /// The current position; `None` at the start.
    cursor: Option<Cursor>,
}

/// The position of a pass.
#[derive(Debug)]
struct Cursor {
    dir: OwnedFd,
    /// For each level that was descended, the position of the group in its parent.
    parents: Vec<u64>,
    /// Position in `dir` of the entry that is read next.
    position: u64,
    /// The inode of the group from which the pass has returned to `dir`: entries up to this one were visited.
    skip_past: Option<u64>,
    /// Whether `dir` has been read from its start.
    from_start: bool,
}

/// The result of [`Cursor::next_child`].
enum Next {
    Child {
        dir: OwnedFd,
        position: u64,
    },
    End,
    /// The limit of the step was reached.
    LimitReached,
}

impl Group {
    /// Starts a pass over the v1 freezer groups below this group; for a group of [`Group::exec_group`], below its
    /// container's, where its processes are. Returns `None` without a v1 freezer, or if the group does not exist in it.
    pub fn thaw_descendants(&self) -> Option<ThawDescendants> {
        let tree = self.trees.with(Controller::Freezer).filter(|tree| !tree.v2)?;
        let path = self.path_in(tree).relative();
        let top = tree.open_dir(path).ok()?;
        Some(ThawDescendants { top, path: tree.describe(path), cursor: None })
    }
}

impl ThawDescendants {
    /// Continues the pass, for at most `limit` groups. Returns whether it is complete. Does not block. If the current
    /// group is removed, the pass starts again.
    ///
    /// # Errors
    /// Reading a directory failed.
    pub fn step(&mut self, limit: usize) -> Result<bool, Error> {
        self.try_step(limit).map_err(|errno| Error::io("thaw groups below", self.path.clone(), errno))
    }

    fn try_step(&mut self, limit: usize) -> Result<bool, Errno> {
        let mut budget = limit;
        while budget > 0 {
            budget -= 1;
            let mut cursor = match self.cursor.take() {
                Some(cursor) => cursor,
                None => Cursor::new(openat(&self.top, c".", DIRECTORY, Mode::empty())?),
            };
            self.cursor = match cursor.next_child(&mut budget)? {
                Next::LimitReached => Some(cursor),
                Next::Child { dir, position } => {
                    thaw_one(&dir);
                    cursor.descend(dir, position);
                    Some(cursor)
                }
                // Names of equal hash may be listed in another order after a seek.
                Next::End if cursor.skip_past.is_some() && !cursor.from_start => {
                    cursor.rewind()?;
                    Some(cursor)
                }
                // The group that the pass was in was removed.
                Next::End if cursor.skip_past.is_some() => None,
                Next::End => match cursor.parents.pop() {
                    Some(position) => cursor.ascend(position)?,
                    None => return Ok(true),
                },
            };
        }
        Ok(false)
    }
}

impl Cursor {
    fn new(dir: OwnedFd) -> Self {
        Self { dir, parents: Vec::new(), position: 0, skip_past: None, from_start: true }
    }

    /// Opens the next child group.
    fn next_child(&mut self, budget: &mut usize) -> Result<Next, Errno> {
        let mut buffer = [MaybeUninit::uninit(); BUFFER];
        let mut entries = RawDir::new(&self.dir, &mut buffer);
        loop {
            if entries.is_buffer_empty() {
                if *budget == 0 {
                    return Ok(Next::LimitReached);
                }
                *budget -= 1;
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

    /// Returns to the parent, or `None` if the group was removed.
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

/// Thaws a group. A group that does not exist is not an error.
pub(crate) fn thaw_one(dir: &OwnedFd) {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    if let Ok(file) = openat(dir, c"freezer.state", flags, Mode::empty()) {
        let _ = write_once(&file, "THAWED");
    }
}
