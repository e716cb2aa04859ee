use std::{
    fs::File,
    io::{Read, Write},
    path::Path,
    time::Duration,
};

use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{
        AtFlags, CWD, Dir, FlockOperation, Mode, OFlags, ResolveFlags, flock, fstat, mkdirat, openat, openat2,
        readlinkat, renameat, symlinkat, unlinkat,
    },
    io::Errno,
};

use crate::{
    failure::Failure,
    state::{Record, remains, shown_root},
};

/// Longest id, as long as a file's name may be.
const ID_MAX: usize = 255;
/// Where the group is made: a symlink whose target is the path, so that it is there whole or not at all.
const GROUP: &str = "group";
/// How often, and how long after one another, a lock is tried that its holder is about to lose.
const LOCK_TRIES: u32 = 100;
const LOCK_PAUSE: Duration = Duration::from_millis(1);
/// How often another call may remove the directory in between.
const RACES_MAX: usize = 16;
/// Largest state.json or filter that is read.
const FILE_MAX: u64 = 16 << 20;

/// `<root>/<id>` of a container.
#[derive(Debug)]
pub(crate) struct Directory {
    root: OwnedFd,
    dir: OwnedFd,
    id: String,
}

impl Directory {
    /// Makes it for a new container, and locks it; an existing one is an error, unless a killed call left it.
    pub(crate) fn create(root: &Path, id: &str) -> Result<Self, Failure> {
        check_id(id)?;
        let what = || format!("create the state directory of container {id}");
        let mut root = open_root(root, true).map_err(|error| Failure::io(what(), error))?;
        for _ in 0..RACES_MAX {
            let made = match mkdirat(&root, id, Mode::from_raw_mode(0o700)) {
                Ok(()) => true,
                Err(Errno::EXIST) => false,
                Err(errno) => return Err(Failure::io(what(), errno)),
            };
            let dir = match open_dir(root.as_fd(), id) {
                Err(Errno::NOENT) => continue,
                result => result.map_err(|errno| Failure::io(what(), errno))?,
            };
            let directory = Self { root, dir, id: id.to_owned() };
            let locked = directory.lock_soon(|| !made && !directory.has_record());
            match (made, locked) {
                (true, true) => return Ok(directory),
                // Removed just now by who found it without a record and without a lock.
                (false, true) if directory.is_gone() => root = directory.root,
                (false, true) if !directory.has_record() => return directory.clear_leftover().map(|()| directory),
                _ => break,
            }
        }
        Err(Failure::new(format!("container with given ID already exists: {id}")))
    }

    /// What a killed call left: a group without a process, and files.
    fn clear_leftover(&self) -> Result<(), Failure> {
        if let Some(path) = self.noted_group() {
            // One that is in use became somebody else's meanwhile.
            let _ = remains(&cgroup::Hierarchies::open()?, &path).map(|group| group.map(cgroup::Group::remove));
        }
        self.uncover_root();
        self.clear()
    }

    /// Puts on record where the group will be made, before it is.
    pub(crate) fn note_group(&self, path: &str) -> Result<(), Failure> {
        let noted = symlinkat(path, &self.dir, GROUP);
        noted.map_err(|errno| Failure::io(format!("note the cgroup of container {}", self.id), errno))
    }

    fn noted_group(&self) -> Option<cgroup::GroupPath> {
        let path = readlinkat(&self.dir, GROUP, Vec::new()).ok()?.into_string().ok()?;
        cgroup::GroupPath::parse(&path).ok()
    }

    /// Opens the container's.
    pub(crate) fn open(root: &Path, id: &str) -> Result<Self, Failure> {
        Self::find(root, id)?.ok_or_else(|| Failure::absent(id))
    }

    /// The same; `None`: there is no such container.
    pub(crate) fn find(root: &Path, id: &str) -> Result<Option<Self>, Failure> {
        check_id(id)?;
        let found = open_root(root, false).and_then(|root| open_dir(root.as_fd(), id).map(|dir| (root, dir)));
        match found {
            Ok((root, dir)) => Ok(Some(Self { root, dir, id: id.to_owned() })),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(errno) => Err(Failure::io(format!("open the state of container {id} in {root:?}"), errno)),
        }
    }

    pub(crate) fn dir(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }

    /// Whether a container was made: without a record it is being made, or a call was killed that was making it.
    pub(crate) fn has_record(&self) -> bool {
        self.has("state.json")
    }

    /// Reads the record.
    pub(crate) fn load(&self) -> Result<Record, Failure> {
        let what = format!("state of container {}", self.id);
        let text = match self.read("state.json") {
            Ok(Some(text)) => text,
            Ok(None) => return Err(Failure::absent(&self.id)),
            Err(error) => return Err(Failure::io(format!("read the {what}"), error)),
        };
        let record: Record = serde_json::from_slice(&text).map_err(|error| Failure::new(format!("{what}: {error}")))?;
        record.check()?;
        Ok(record)
    }

    /// Writes the record, beside and renamed, so that it is there whole or not at all.
    pub(crate) fn save(&self, record: &Record) -> Result<(), Failure> {
        let what = || format!("write the state of container {}", self.id);
        let text = serde_json::to_vec(record).map_err(|error| Failure::new(format!("{}: {error}", what())))?;
        self.write(".state.json", &text).map_err(|error| Failure::io(what(), error))?;
        renameat(&self.dir, ".state.json", &self.dir, "state.json").map_err(|error| Failure::io(what(), error))
    }

    /// Keeps the compiled filter for commands.
    pub(crate) fn save_seccomp(&self, program: &seccomp::Program) -> Result<(), Failure> {
        let written = self.write("seccomp.bpf", &program.to_bytes());
        written.map_err(|error| Failure::io(format!("write the seccomp filter of container {}", self.id), error))
    }

    /// The compiled filter that commands get too.
    pub(crate) fn seccomp(&self) -> Result<Option<seccomp::Program>, Failure> {
        let what = || format!("read the seccomp filter of container {}", self.id);
        match self.read("seccomp.bpf").map_err(|error| Failure::io(what(), error))? {
            None => Ok(None),
            Some(bytes) => match seccomp::Program::from_bytes(&bytes) {
                Ok(program) => Ok(Some(program)),
                Err(error) => Err(Failure::new(format!("{}: {error}", what()))),
            },
        }
    }

    /// The next call may have the directory: what it needs is written.
    pub(crate) fn unlock(&self) {
        // An error means that there was no lock.
        let _ = flock(&self.dir, FlockOperation::Unlock);
    }

    /// Removes what a killed call left. A directory that a call is at work in stays.
    pub(crate) fn remove_leftover(self) -> Result<(), Failure> {
        if !self.lock_soon(|| true) {
            return Err(Failure::new(format!("container {} is being made by another call; try again", self.id)));
        }
        self.clear_leftover()?;
        self.remove()
    }

    /// Removes a container whose record cannot be read: its processes and its group, as far as they were noted.
    pub(crate) fn remove_broken(self) -> Result<(), Failure> {
        if let Some(path) = self.noted_group()
            && let Some(group) = remains(&cgroup::Hierarchies::open()?, &path)?
        {
            group.kill()?;
            group.remove()?;
        }
        self.uncover_root();
        self.remove()
    }

    /// Whether it could be locked, at once or, as long as it is worth waiting, a moment later: the child of a call that
    /// was killed just now has the lock until it notices.
    fn lock_soon(&self, worth_waiting: impl Fn() -> bool) -> bool {
        for _ in 0..LOCK_TRIES {
            if flock(&self.dir, FlockOperation::NonBlockingLockExclusive).is_ok() {
                return true;
            }
            if !worth_waiting() {
                return false;
            }
            std::thread::sleep(LOCK_PAUSE);
        }
        false
    }

    /// Waits until no other call is at work on the container. The lock ends with this process.
    pub(crate) fn lock(&self) -> Result<(), Failure> {
        loop {
            match flock(&self.dir, FlockOperation::LockExclusive) {
                Err(Errno::INTR) => {}
                result => return result.map_err(|errno| Failure::io(format!("lock container {}", self.id), errno)),
            }
        }
    }

    /// Removes all of it.
    pub(crate) fn remove(self) -> Result<(), Failure> {
        // Without its record it is another call's to take over, or to remove: not before this one is done.
        self.lock()?;
        if self.is_gone() {
            return Ok(());
        }
        for name in ["state.json", GROUP, "seccomp.bpf", shown_root::ROOT] {
            // What cannot be removed here is told below.
            let _ = unlinkat(&self.dir, name, AtFlags::empty());
        }
        let remove = || match unlinkat(&self.root, &self.id, AtFlags::REMOVEDIR) {
            Err(Errno::NOENT) => Ok(()),
            result => result,
        };
        let removed = match remove() {
            Err(Errno::NOTEMPTY | Errno::EXIST) => {
                self.clear()?;
                remove()
            }
            result => result,
        };
        removed.map_err(|errno| Failure::io(format!("remove the state directory of container {}", self.id), errno))
    }

    fn has(&self, name: &str) -> bool {
        rustix::fs::statat(&self.dir, name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    /// Whether it was removed after it was opened.
    fn is_gone(&self) -> bool {
        fstat(&self.dir).is_ok_and(|found| found.st_nlink == 0)
    }

    fn clear(&self) -> Result<(), Failure> {
        let what = || format!("clear the state directory of container {}", self.id);
        let entries = Dir::read_from(&self.dir).map_err(|error| Failure::io(what(), error))?;
        for entry in entries {
            let entry = entry.map_err(|error| Failure::io(what(), error))?;
            if [c".", c".."].contains(&entry.file_name()) {
                continue;
            }
            match unlinkat(&self.dir, entry.file_name(), AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(errno) => return Err(Failure::io(what(), errno)),
            }
        }
        Ok(())
    }

    fn read(&self, name: &str) -> std::io::Result<Option<Vec<u8>>> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = match openat(&self.dir, name, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        let mut bytes = Vec::with_capacity(8 << 10);
        file.take(FILE_MAX).read_to_end(&mut bytes)?;
        Ok(Some(bytes))
    }

    fn write(&self, name: &str, bytes: &[u8]) -> std::io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        File::from(openat(&self.dir, name, flags, Mode::from_raw_mode(0o600))?).write_all(bytes)
    }
}

/// Ids of all directories under a root.
pub(crate) fn list(root: &Path) -> Result<Vec<String>, Failure> {
    let what = |error: std::io::Error| Failure::io(format!("list the containers in {root:?}"), error);
    let mut ids = Vec::new();
    match std::fs::read_dir(root) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(ids),
        Err(error) => return Err(what(error)),
        Ok(entries) => {
            for entry in entries {
                let entry = entry.map_err(what)?;
                let directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
                ids.extend(entry.file_name().into_string().ok().filter(|id| directory && check_id(id).is_ok()));
            }
        }
    }
    ids.sort();
    Ok(ids)
}

/// The characters that runc allows; nothing that leads out of the root.
fn check_id(id: &str) -> Result<(), Failure> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_+-.".contains(&byte);
    if id.is_empty() || id.len() > ID_MAX || id == "." || id == ".." || !id.bytes().all(allowed) {
        return Err(Failure::new(format!(
            "invalid container ID format: {id:?}: must be 1 to {ID_MAX} of A-Z a-z 0-9 _ + - ."
        )));
    }
    Ok(())
}

fn open_root(root: &Path, make: bool) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match openat(CWD, root, flags, Mode::empty()) {
        Err(Errno::NOENT) if make => {
            let mut builder = std::fs::DirBuilder::new();
            std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o711);
            let made = builder.recursive(true).create(root);
            made.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
            openat(CWD, root, flags, Mode::empty())
        }
        result => result,
    }
}

fn open_dir(root: BorrowedFd<'_>, id: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat2(root, id, flags, Mode::empty(), ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS)
}
