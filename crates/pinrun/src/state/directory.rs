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
    state::{Record, open_partial, root_mount},
};

/// Longest id in bytes: the longest file name.
const ID_MAX: usize = 255;
/// A symlink whose target is the path of the cgroup. A symlink is created atomically with its contents.
const GROUP: &str = "group";
/// How often, and at which interval, a lock is tried whose holder is about to release it.
const LOCK_TRIES: u32 = 100;
const LOCK_PAUSE: Duration = Duration::from_millis(1);
/// How often the creation is retried because another call removed the directory in between.
const RACES_MAX: usize = 16;
/// Largest state.json or filter in bytes.
const FILE_MAX: u64 = 16 << 20;

/// The state directory of a container, `<root>/<id>`.
#[derive(Debug)]
pub(crate) struct Directory {
    root: OwnedFd,
    dir: OwnedFd,
    id: String,
}

impl Directory {
    /// Creates and locks the directory of a new container. An existing directory is an error, unless a killed call left
    /// it.
    pub(crate) fn create(root: &Path, id: &str) -> Result<Self, Failure> {
        check_id(id)?;
        let operation = || format!("create the state directory of container {id}");
        let mut root = open_root(root, true).map_err(|error| Failure::io(operation(), error))?;
        for _ in 0..RACES_MAX {
            let created = match mkdirat(&root, id, Mode::from_raw_mode(0o700)) {
                Ok(()) => true,
                Err(Errno::EXIST) => false,
                Err(errno) => return Err(Failure::io(operation(), errno)),
            };
            let dir = match open_dir(root.as_fd(), id) {
                Err(Errno::NOENT) => continue,
                result => result.map_err(|errno| Failure::io(operation(), errno))?,
            };
            let directory = Self { root, dir, id: id.to_owned() };
            let locked = directory.try_lock(|| !created && !directory.has_record());
            match (created, locked) {
                (true, true) => return Ok(directory),
                // Another call found it without a record and without a lock, and removed it.
                (false, true) if directory.is_removed() => root = directory.root,
                (false, true) if !directory.has_record() => return directory.clear_leftover().map(|()| directory),
                _ => break,
            }
        }
        Err(Failure::new(format!("container with given ID already exists: {id}")))
    }

    /// Removes the leftovers of a killed call: a cgroup without processes, and files.
    fn clear_leftover(&self) -> Result<(), Failure> {
        if let Some(path) = self.saved_cgroup_path() {
            // This fails for a cgroup with processes, which another program uses by now.
            let _ = open_partial(&cgroup::Hierarchies::open()?, &path).map(|group| group.map(cgroup::Group::remove));
        }
        self.detach_root();
        self.clear()
    }

    /// Saves the path of the cgroup before the cgroup is created.
    pub(crate) fn save_cgroup_path(&self, path: &str) -> Result<(), Failure> {
        let saved = symlinkat(path, &self.dir, GROUP);
        saved.map_err(|errno| Failure::io(format!("record the cgroup path of container {}", self.id), errno))
    }

    fn saved_cgroup_path(&self) -> Option<cgroup::GroupPath> {
        let path = readlinkat(&self.dir, GROUP, Vec::new()).ok()?.into_string().ok()?;
        cgroup::GroupPath::parse(&path).ok()
    }

    /// Saves what is mounted at the root; to be called before the container is created.
    pub(crate) fn save_root_mount(&self, path: &Path) -> Result<(), Failure> {
        root_mount::save(self.dir(), path)
    }

    /// Detaches the root of a container whose creation failed, if it was attached.
    pub(crate) fn detach_root(&self) {
        root_mount::detach(self.dir());
    }

    /// Opens the directory of an existing container.
    pub(crate) fn open(root: &Path, id: &str) -> Result<Self, Failure> {
        Self::find(root, id)?.ok_or_else(|| Failure::absent(id))
    }

    /// Opens the directory of a container; returns `None` if it does not exist.
    pub(crate) fn find(root: &Path, id: &str) -> Result<Option<Self>, Failure> {
        check_id(id)?;
        let opened = open_root(root, false).and_then(|root| open_dir(root.as_fd(), id).map(|dir| (root, dir)));
        match opened {
            Ok((root, dir)) => Ok(Some(Self { root, dir, id: id.to_owned() })),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(errno) => Err(Failure::io(format!("open the state of container {id} in {root:?}"), errno)),
        }
    }

    pub(crate) fn dir(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }

    /// Reports whether the container was created. Without a record it is being created, or the call that created it was
    /// killed.
    pub(crate) fn has_record(&self) -> bool {
        self.has("state.json")
    }

    /// Reads the record.
    pub(crate) fn load(&self) -> Result<Record, Failure> {
        let operation = format!("read the state of container {}", self.id);
        let text = match self.read("state.json") {
            Ok(Some(text)) => text,
            Ok(None) => return Err(Failure::absent(&self.id)),
            Err(error) => return Err(Failure::io(operation, error)),
        };
        let parsed = serde_json::from_slice(&text);
        let record: Record = parsed.map_err(|error| Failure::new(format!("{operation}: {error}")))?;
        record.check()?;
        Ok(record)
    }

    /// Writes the record atomically, by rename.
    pub(crate) fn save(&self, record: &Record) -> Result<(), Failure> {
        let operation = || format!("write the state of container {}", self.id);
        let text = serde_json::to_vec(record).map_err(|error| Failure::new(format!("{}: {error}", operation())))?;
        self.write(".state.json", &text).map_err(|error| Failure::io(operation(), error))?;
        renameat(&self.dir, ".state.json", &self.dir, "state.json").map_err(|error| Failure::io(operation(), error))
    }

    /// Saves the compiled seccomp filter for exec.
    pub(crate) fn save_seccomp(&self, program: &seccomp::Program) -> Result<(), Failure> {
        let written = self.write("seccomp.bpf", &program.to_bytes());
        written.map_err(|error| Failure::io(format!("write the seccomp filter of container {}", self.id), error))
    }

    /// Loads the compiled seccomp filter for exec, if the container has one.
    pub(crate) fn seccomp(&self) -> Result<Option<seccomp::Program>, Failure> {
        let operation = || format!("read the seccomp filter of container {}", self.id);
        match self.read("seccomp.bpf").map_err(|error| Failure::io(operation(), error))? {
            None => Ok(None),
            Some(bytes) => match seccomp::Program::from_bytes(&bytes) {
                Ok(program) => Ok(Some(program)),
                Err(error) => Err(Failure::new(format!("{}: {error}", operation()))),
            },
        }
    }

    /// Releases the lock, after all that later calls need is written.
    pub(crate) fn unlock(&self) {
        // This fails only if the directory is not locked.
        let _ = flock(&self.dir, FlockOperation::Unlock);
    }

    /// Removes the leftovers of a killed call. Fails if another call uses the directory.
    pub(crate) fn remove_leftover(self) -> Result<(), Failure> {
        if !self.try_lock(|| true) {
            return Err(Failure::new(format!("container {} is being created by another call; try again", self.id)));
        }
        self.clear_leftover()?;
        self.remove()
    }

    /// Removes a container whose record cannot be read: kills its processes and removes its cgroup, if its path was
    /// saved.
    pub(crate) fn remove_broken(self) -> Result<(), Failure> {
        if let Some(path) = self.saved_cgroup_path()
            && let Some(group) = open_partial(&cgroup::Hierarchies::open()?, &path)?
        {
            group.kill()?;
            group.remove()?;
        }
        self.detach_root();
        self.remove()
    }

    /// Tries to lock the directory, repeatedly while `worth_waiting` returns true: the child of a killed call holds the
    /// lock until it notices that its parent has exited. Returns whether the directory was locked.
    fn try_lock(&self, worth_waiting: impl Fn() -> bool) -> bool {
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

    /// Locks the container, waiting for other calls to release it. The exit of this process releases the lock.
    pub(crate) fn lock(&self) -> Result<(), Failure> {
        loop {
            match flock(&self.dir, FlockOperation::LockExclusive) {
                Err(Errno::INTR) => {}
                result => return result.map_err(|errno| Failure::io(format!("lock container {}", self.id), errno)),
            }
        }
    }

    /// Removes the directory with its contents.
    pub(crate) fn remove(self) -> Result<(), Failure> {
        // As soon as the record is removed, another call may take over or remove the directory; the lock makes it wait.
        self.lock()?;
        if self.is_removed() {
            return Ok(());
        }
        for name in ["state.json", GROUP, "seccomp.bpf", root_mount::ROOT] {
            // A file that cannot be removed makes the removal of the directory fail below.
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

    /// Reports whether the directory was removed after it was opened.
    fn is_removed(&self) -> bool {
        fstat(&self.dir).is_ok_and(|stat| stat.st_nlink == 0)
    }

    fn clear(&self) -> Result<(), Failure> {
        let operation = || format!("clear the state directory of container {}", self.id);
        let entries = Dir::read_from(&self.dir).map_err(|error| Failure::io(operation(), error))?;
        for entry in entries {
            let entry = entry.map_err(|error| Failure::io(operation(), error))?;
            if [c".", c".."].contains(&entry.file_name()) {
                continue;
            }
            match unlinkat(&self.dir, entry.file_name(), AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(errno) => return Err(Failure::io(operation(), errno)),
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

/// Lists the ids of all state directories in a root.
pub(crate) fn list(root: &Path) -> Result<Vec<String>, Failure> {
    let failed = |error: std::io::Error| Failure::io(format!("list the containers in {root:?}"), error);
    let mut ids = Vec::new();
    match std::fs::read_dir(root) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(ids),
        Err(error) => return Err(failed(error)),
        Ok(entries) => {
            for entry in entries {
                let entry = entry.map_err(failed)?;
                let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
                ids.extend(entry.file_name().into_string().ok().filter(|id| is_directory && check_id(id).is_ok()));
            }
        }
    }
    ids.sort();
    Ok(ids)
}

/// Checks an id: the characters that runc allows, and no name that leads out of the root.
fn check_id(id: &str) -> Result<(), Failure> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_+-.".contains(&byte);
    if id.is_empty() || id.len() > ID_MAX || id == "." || id == ".." || !id.bytes().all(allowed) {
        return Err(Failure::new(format!(
            "invalid container ID format: {id:?}: must be 1 to {ID_MAX} of A-Z a-z 0-9 _ + - ."
        )));
    }
    Ok(())
}

fn open_root(root: &Path, create: bool) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match openat(CWD, root, flags, Mode::empty()) {
        Err(Errno::NOENT) if create => {
            let mut builder = std::fs::DirBuilder::new();
            std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o711);
            let created = builder.recursive(true).create(root);
            created.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
            openat(CWD, root, flags, Mode::empty())
        }
        result => result,
    }
}

fn open_dir(root: BorrowedFd<'_>, id: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat2(root, id, flags, Mode::empty(), ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS)
}
