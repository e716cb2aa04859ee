//! The log file of a container. Containers that mount the node's log directories can place any file there. Therefore no
//! link below the pod's directory is followed, and no file is opened that would block.

use std::{
    fs::DirBuilder,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use monitor_api::{Attachments, LogLimit, LogOptions, Role};
use rustix::{
    fd::{AsRawFd, OwnedFd},
    fs::{FileType, Mode, OFlags, ResolveFlags, fstat, mkdirat, open, openat2},
    io::Errno,
};

use crate::{Config, Error, error::failed, store::ContainerMetadata};

const DIRECTORY_FLAGS: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
/// Flags to append to a log. Without O_NONBLOCK, opening a FIFO would block.
const APPEND: OFlags =
    OFlags::WRONLY.union(OFlags::APPEND).union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// An open log.
#[derive(Debug)]
pub(crate) struct LogFile {
    pub(crate) file: OwnedFd,
    /// An `O_PATH` descriptor of its directory, if its size is limited.
    pub(crate) directory: Option<OwnedFd>,
}

impl LogFile {
    /// Returns `O_PATH` duplicates with their roles. Such a descriptor can be given to a monitor, and closing it never
    /// blocks; closing one that is open for writing may wait for a server that is gone (NFS writes back then).
    ///
    /// # Errors
    /// `EMFILE`.
    pub(crate) fn duplicate_paths(&self) -> Result<Attachments, Error> {
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let file = open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
        let mut files = Attachments::new().with(Role::Log, file.map_err(failed("duplicate a log's descriptor"))?);
        if let Some(directory) = &self.directory {
            let directory = directory.try_clone().map_err(failed("duplicate the descriptor of a log's directory"))?;
            files.push(Role::LOG_DIRECTORY, directory);
        }
        Ok(files)
    }

    /// Returns the descriptors with their roles.
    pub(crate) fn into_attachments(self) -> Attachments {
        let mut files = Attachments::new().with(Role::Log, self.file);
        self.directory.into_iter().for_each(|directory| files.push(Role::LOG_DIRECTORY, directory));
        files
    }
}

/// Opens the log for appending. Creates it and its parent directories if they are missing. `None`: the container has no
/// log. Blocks.
pub(crate) fn open_log(config: &Config, metadata: &ContainerMetadata) -> Result<Option<LogFile>, Error> {
    let Some(path) = &metadata.log_path else { return Ok(None) };
    let (directory, relative_path) = split(path, metadata.config.log_path.as_deref());
    let file = open_or_create(&directory, relative_path)?;
    let directory = size_max(config, metadata).is_some().then(|| open_parent(&directory, relative_path)).transpose()?;
    Ok(Some(LogFile { file, directory }))
}

/// Returns the maximum size of the log of a container. Those of sandbox containers are in the state directory, on a tmpfs.
fn size_max(config: &Config, metadata: &ContainerMetadata) -> Option<u64> {
    const SANDBOX_CONTAINER_MAX: u64 = 64 << 10;
    match metadata.config.is_sandbox_container() {
        true => Some(SANDBOX_CONTAINER_MAX),
        false => config.log_size_max,
    }
}

/// Returns how the log of a container is written.
pub(crate) fn options(config: &Config, metadata: &ContainerMetadata) -> LogOptions {
    let name = metadata.log_path.as_deref().and_then(Path::file_name).and_then(|name| name.to_str());
    let limit = size_max(config, metadata).zip(name);
    LogOptions {
        line_max: config.log_line_max,
        awaited: false,
        limit: limit.map(|(size_max, name)| LogLimit { size_max, name: name.to_owned() }),
    }
}

/// Opens the log for reading. `None`: the container has no log, or the file does not exist. Blocks.
pub(crate) fn read_log(metadata: &ContainerMetadata) -> Result<Option<OwnedFd>, Error> {
    let Some(path) = &metadata.log_path else { return Ok(None) };
    let (directory, relative_path) = split(path, metadata.config.log_path.as_deref());
    let operation = format!("open the log {}", path.display());
    let at = open(&directory, DIRECTORY_FLAGS, Mode::empty())
        .map_err(failed(format_args!("open {}", directory.display())))?;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    match open_beneath(&at, relative_path, flags) {
        Ok(log) => check_regular(log, &operation).map(Some),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(open_error(operation, errno)),
    }
}

/// Splits the path of a log into the pod's directory and the path below it that the container's configuration names.
fn split<'a>(path: &'a Path, configured: Option<&Path>) -> (PathBuf, &'a Path) {
    let relative = configured.filter(|configured| configured.is_relative() && path.ends_with(configured));
    let depth = relative.map(|relative| relative.components().count());
    let directory = path.ancestors().nth(depth.unwrap_or(1)).unwrap_or(Path::new("/"));
    (directory.to_owned(), path.strip_prefix(directory).unwrap_or(path))
}

fn open_or_create(directory: &Path, relative_path: &Path) -> Result<OwnedFd, Error> {
    let operation = format!("open the log {}", directory.join(relative_path).display());
    // An existing log is opened even where no file can be created: mkdir(2) on a frozen file system waits before it
    // looks for an existing directory.
    let log =
        match open(directory, DIRECTORY_FLAGS, Mode::empty()).and_then(|at| open_beneath(&at, relative_path, APPEND)) {
            Err(Errno::NOENT) => create_below(directory, relative_path)?,
            opened => opened.map_err(|errno| open_error(operation.clone(), errno))?,
        };
    check_regular(log, &operation)
}

/// Opens the directory that contains the log.
fn open_parent(directory: &Path, relative_path: &Path) -> Result<OwnedFd, Error> {
    let parent = relative_path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let opened = open(directory, DIRECTORY_FLAGS, Mode::empty());
    opened
        .and_then(|at| open_beneath(&at, parent, DIRECTORY_FLAGS))
        .map_err(|errno| open_error(format!("open the log directory {}", directory.join(parent).display()), errno))
}

fn check_regular(log: OwnedFd, operation: &str) -> Result<OwnedFd, Error> {
    match FileType::from_raw_mode(fstat(&log).map_err(failed(operation))?.st_mode) {
        FileType::RegularFile => Ok(log),
        kind => Err(Error::state(format!("{operation}: it is not a regular file but a {kind:?}; remove it"))),
    }
}

fn create_below(directory: &Path, relative_path: &Path) -> Result<OwnedFd, Error> {
    let created = DirBuilder::new().recursive(true).mode(0o755).create(directory);
    created.map_err(failed(format_args!("create the log directory {}", directory.display())))?;
    let operation = |verb: &str, path: &Path| format!("{verb} {}", directory.join(path).display());
    let at = open(directory, DIRECTORY_FLAGS, Mode::empty())
        .map_err(failed(format_args!("open {}", directory.display())))?;
    let parents: Vec<&Path> = relative_path.ancestors().skip(1).filter(|path| !path.as_os_str().is_empty()).collect();
    for path in parents.into_iter().rev() {
        // Relative to the opened directory, so that a link that replaces a parent in the meantime has no effect.
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let parent = open_beneath(&at, parent, DIRECTORY_FLAGS)
            .map_err(|errno| open_error(operation("open the log directory", parent), errno))?;
        match mkdirat(&parent, path.file_name().unwrap_or_default(), Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(failed(operation("create the log directory", path))(errno)),
        }
    }
    open_beneath(&at, relative_path, APPEND | OFlags::CREATE)
        .map_err(|errno| open_error(operation("open the log", relative_path), errno))
}

/// Opens a path below a directory, without following links.
fn open_beneath(at: &OwnedFd, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let mode = if flags.contains(OFlags::CREATE) { Mode::from_raw_mode(0o640) } else { Mode::empty() };
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    loop {
        match openat2(at, path, flags, mode, resolve) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            opened => return opened,
        }
    }
}

fn open_error(operation: String, errno: Errno) -> Error {
    match errno {
        Errno::LOOP => {
            Error::state(format!("{operation}: the path contains a symbolic link, which is not followed; remove it"))
        }
        // A FIFO without a reader.
        Errno::NXIO => Error::state(format!("{operation}: it is not a regular file; remove it")),
        errno => failed(operation)(errno),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use rustix::fs::CWD;

    use super::*;
    use crate::ErrorKind;

    #[test]
    fn a_path_is_split_at_the_pods_directory() {
        let parts = |path, configured: Option<&str>| {
            let (directory, relative_path) = split(Path::new(path), configured.map(Path::new));
            (directory.display().to_string(), relative_path.display().to_string())
        };
        assert_eq!(parts("/pods/p/c/0.log", Some("c/0.log")), ("/pods/p".into(), "c/0.log".into()));
        assert_eq!(parts("/pods/p/0.log", Some("./0.log")), ("/pods/p".into(), "0.log".into()));
        assert_eq!(parts("/own.log", Some("/own.log")), ("/".into(), "own.log".into()));
        assert_eq!(parts("/a/own.log", None), ("/a".into(), "own.log".into()));
    }

    #[test]
    fn links_and_fifos_in_place_of_a_log_are_neither_followed_nor_waited_for() {
        let directory = tempfile::tempdir().expect("directory");
        let pod = directory.path().join("pod");
        let open = |path: &str| open_or_create(&pod, Path::new(path));
        drop(open("c/0.log").expect("create with its directories"));
        fs::write(pod.join("c/0.log"), "kept\n").expect("write");
        std::io::Write::write_all(&mut fs::File::from(open("c/0.log").expect("again")), b"more\n").expect("write");
        assert_eq!(fs::read_to_string(pod.join("c/0.log")).expect("read"), "kept\nmore\n");

        let victim = directory.path().join("victim");
        fs::write(&victim, "").expect("write");
        symlink(&victim, pod.join("file.log")).expect("link");
        symlink(directory.path(), pod.join("outside")).expect("link");
        symlink("c", pod.join("within")).expect("link");
        rustix::fs::mknodat(CWD, pod.join("fifo"), FileType::Fifo, Mode::from_raw_mode(0o600), 0).expect("FIFO");
        let reader = pod.join("read");
        rustix::fs::mknodat(CWD, &reader, FileType::Fifo, Mode::from_raw_mode(0o600), 0).expect("FIFO");
        let _read = rustix::fs::open(&reader, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty()).expect("open");
        for path in ["file.log", "outside/victim", "outside/new/0.log", "within/0.log", "fifo", "read"] {
            let error = open(path).expect_err(path);
            assert_eq!(error.kind, ErrorKind::FailedPrecondition, "{error}");
            assert!(error.message.contains("remove it"), "{error}");
        }
        assert_eq!(fs::read_to_string(&victim).expect("read"), "");
        assert!(!directory.path().join("new").exists());
    }
}
