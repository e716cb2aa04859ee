//! Iterative walks over directory trees that a container or an image has created.
//!
//! Such a tree may be arbitrarily deep and wide and may change during the walk. A walk uses constant stack, at most
//! three descriptors, and memory that is bounded by [`DEPTH_MAX`] and [`PENDING_MAX`]. Every name is resolved on the
//! descriptor of its directory, without symlinks and without crossing a mount (`openat2`, Linux 5.6). The way up is
//! `..`, checked against the device and inode numbers seen on the way down: a directory that was moved in the meantime
//! ends the walk with [`Errno::STALE`] instead of leading it out of the tree.

use std::{
    ffi::{CStr, CString},
    mem::MaybeUninit,
};

use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{AtFlags, FileType, Mode, OFlags, RawDir, ResolveFlags, SeekFrom},
    io::Errno,
};

/// Levels below the root that a walk descends to. A removal moves what is deeper next to the root and continues there.
pub const DEPTH_MAX: usize = 32_768;
/// The number of names of subdirectories that a walk holds; beyond it each level holds one.
const PENDING_MAX: usize = 16 * 1024;
/// The number of names of subdirectories that one level holds.
const LEVEL_PENDING_MAX: usize = 64;
/// Bytes of directory entries read at once.
const BUFFER: usize = 32 * 1024;
/// How often a directory is emptied again if it is not empty afterwards.
const ATTEMPTS: u32 = 16;

const OPEN: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// What a walk does next with a subdirectory.
#[derive(Debug)]
pub enum Step {
    /// Visits its entries.
    Descend,
    /// Skips it.
    Skip,
    /// Visits it in the root of the walk, to which it was renamed with this name.
    Moved(CString),
}

/// What a walk does next after the entries of a subdirectory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// Continues.
    Done,
    /// Visits the entries again, at most 16 times.
    Again,
}

/// Receives the entries of a walk. An error of any method ends the walk.
pub trait Visitor {
    /// Visits an entry that is not a directory.
    ///
    /// # Errors
    /// Those of the visitor.
    fn file(&mut self, parent: BorrowedFd<'_>, name: &CStr) -> rustix::io::Result<()>;

    /// Visits a subdirectory before its entries. `deep` is set if the walk cannot descend further.
    ///
    /// # Errors
    /// Those of the visitor.
    fn enter(&mut self, parent: BorrowedFd<'_>, name: &CStr, deep: bool) -> rustix::io::Result<Step>;

    /// Visits a subdirectory, for which [`Visitor::enter`] has returned [`Step::Descend`], after its entries.
    ///
    /// # Errors
    /// Those of the visitor.
    fn leave(&mut self, parent: BorrowedFd<'_>, name: &CStr) -> rustix::io::Result<Leave>;

    /// Handles a subdirectory that cannot be opened, except if it was removed or replaced by another file.
    ///
    /// # Errors
    /// `cause`, unless the visitor accepts it.
    fn unreadable(&mut self, name: &CStr, cause: Errno) -> rustix::io::Result<()> {
        let _ = name;
        Err(cause)
    }
}

/// A directory on the way from the root to the current one.
struct Level {
    name: CString,
    device: u64,
    inode: u64,
    /// The position of the next entry to read.
    cookie: u64,
    exhausted: bool,
    pending: Vec<CString>,
    attempt: u32,
}

impl Level {
    fn new(name: CString, directory: &OwnedFd, attempt: u32) -> rustix::io::Result<Self> {
        let stat = rustix::fs::fstat(directory)?;
        let (device, inode) = (stat.st_dev, stat.st_ino);
        Ok(Self { name, device, inode, cookie: 0, exhausted: false, pending: Vec::new(), attempt })
    }

    fn is(&self, directory: &OwnedFd) -> rustix::io::Result<bool> {
        let stat = rustix::fs::fstat(directory)?;
        Ok((stat.st_dev, stat.st_ino) == (self.device, self.inode))
    }
}

/// Visits all entries below the directory `root`, which is not visited itself. Symlinks are treated as files.
///
/// # Errors
/// The first error of the visitor or of reading a directory; [`Errno::STALE`] if a directory was moved during the walk.
pub fn walk(root: BorrowedFd<'_>, visitor: &mut dyn Visitor) -> rustix::io::Result<()> {
    let current = rustix::fs::openat(root, c".", OPEN, Mode::empty())?;
    let levels = vec![Level::new(CString::default(), &current, 0)?];
    let buffer = vec![MaybeUninit::uninit(); BUFFER];
    Walk { current, levels, pending: 0, buffer, visitor }.run()
}

struct Walk<'a> {
    current: OwnedFd,
    levels: Vec<Level>,
    /// The number of names that all levels hold.
    pending: usize,
    buffer: Vec<MaybeUninit<u8>>,
    visitor: &'a mut dyn Visitor,
}

impl Walk<'_> {
    fn run(mut self) -> rustix::io::Result<()> {
        while let Some(level) = self.levels.last_mut() {
            if let Some(name) = level.pending.pop() {
                self.pending -= 1;
                self.enter(name)?;
            } else if !level.exhausted {
                self.read()?;
            } else if !self.leave()? {
                break;
            }
        }
        Ok(())
    }

    fn enter(&mut self, name: CString) -> rustix::io::Result<()> {
        match self.visitor.enter(self.current.as_fd(), &name, self.levels.len() > DEPTH_MAX)? {
            Step::Descend => self.descend(name, 0),
            Step::Skip => Ok(()),
            Step::Moved(name) => {
                self.levels[0].pending.push(name);
                self.pending += 1;
                Ok(())
            }
        }
    }

    fn descend(&mut self, name: CString, attempt: u32) -> rustix::io::Result<()> {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        match rustix::fs::openat2(&self.current, &name, OPEN, Mode::empty(), resolve) {
            Ok(below) => {
                self.levels.push(Level::new(name, &below, attempt)?);
                self.current = below;
                Ok(())
            }
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(()),
            Err(cause) => self.visitor.unreadable(&name, cause),
        }
    }

    /// Reads entries until there are enough subdirectories to visit.
    fn read(&mut self) -> rustix::io::Result<()> {
        let Some(level) = self.levels.last_mut() else { return Ok(()) };
        let limit = if self.pending < PENDING_MAX { LEVEL_PENDING_MAX } else { 1 };
        rustix::fs::seek(&self.current, SeekFrom::Start(level.cookie))?;
        let mut entries = RawDir::new(&self.current, &mut self.buffer);
        while level.pending.len() < limit {
            let entry = match entries.next() {
                None => {
                    level.exhausted = true;
                    break;
                }
                // The directory was removed during the walk.
                Some(Err(Errno::NOENT)) => {
                    level.exhausted = true;
                    break;
                }
                Some(entry) => entry?,
            };
            level.cookie = entry.next_entry_cookie();
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let kind = match entry.file_type() {
                FileType::Unknown => match rustix::fs::statat(&self.current, name, AtFlags::SYMLINK_NOFOLLOW) {
                    Ok(stat) => FileType::from_raw_mode(stat.st_mode),
                    Err(Errno::NOENT) => continue,
                    Err(cause) => return Err(cause),
                },
                kind => kind,
            };
            if kind == FileType::Directory {
                level.pending.push(name.to_owned());
                self.pending += 1;
            } else {
                self.visitor.file(self.current.as_fd(), name)?;
            }
        }
        Ok(())
    }

    /// Returns to the parent level; returns false at the root.
    fn leave(&mut self) -> rustix::io::Result<bool> {
        let Some(level) = self.levels.pop() else { return Ok(false) };
        let Some(above) = self.levels.last() else { return Ok(false) };
        let parent = rustix::fs::openat(&self.current, c"..", OPEN, Mode::empty())?;
        if !above.is(&parent)? {
            return Err(Errno::STALE);
        }
        self.current = parent;
        match self.visitor.leave(self.current.as_fd(), &level.name)? {
            Leave::Done => {}
            Leave::Again if level.attempt >= ATTEMPTS => return Err(Errno::NOTEMPTY),
            Leave::Again => self.descend(level.name, level.attempt + 1)?,
        }
        Ok(true)
    }
}

/// Removes a file, or a directory with its contents, without following symlinks. Succeeds if it does not exist.
///
/// # Errors
/// The first error, after which a part of it may be removed. [`Errno::XDEV`]: a file system is mounted in it.
/// [`Errno::BUSY`]: it is a mountpoint, and empty now.
pub fn remove(parent: BorrowedFd<'_>, name: &CStr) -> rustix::io::Result<()> {
    match rustix::fs::unlinkat(parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(cause) => return Err(cause),
    }
    match rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        // For a mountpoint the kernel returns EBUSY before it checks whether it is empty.
        Err(Errno::NOTEMPTY | Errno::EXIST | Errno::BUSY) => {}
        Err(cause) => return Err(cause),
    }
    for _ in 0..ATTEMPTS {
        let root = rustix::fs::openat(parent, name, OPEN, Mode::empty())?;
        walk(root.as_fd(), &mut Removal { root: root.as_fd(), moved: 0 })?;
        match rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            Err(Errno::NOTEMPTY | Errno::EXIST) => {}
            Err(cause) => return Err(cause),
        }
    }
    Err(Errno::NOTEMPTY)
}

struct Removal<'a> {
    root: BorrowedFd<'a>,
    moved: u64,
}

impl Visitor for Removal<'_> {
    fn file(&mut self, parent: BorrowedFd<'_>, name: &CStr) -> rustix::io::Result<()> {
        match rustix::fs::unlinkat(parent, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(cause) => Err(cause),
        }
    }

    fn enter(&mut self, parent: BorrowedFd<'_>, name: &CStr, deep: bool) -> rustix::io::Result<Step> {
        if !deep {
            return Ok(Step::Descend);
        }
        loop {
            self.moved += 1;
            let target = CString::new(format!(".deep-{}", self.moved)).map_err(|_| Errno::INVAL)?;
            let flags = rustix::fs::RenameFlags::NOREPLACE;
            match rustix::fs::renameat_with(parent, name, self.root, &target, flags) {
                Ok(()) => return Ok(Step::Moved(target)),
                Err(Errno::EXIST) => {}
                Err(cause) => return Err(cause),
            }
        }
    }

    fn leave(&mut self, parent: BorrowedFd<'_>, name: &CStr) -> rustix::io::Result<Leave> {
        match rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(Leave::Done),
            Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(Leave::Again),
            Err(cause) => Err(cause),
        }
    }
}
