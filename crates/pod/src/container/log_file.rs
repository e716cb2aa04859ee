//! The log file of a container. Containers that mount the node's log directories can put anything in its place, so
//! nothing below the pod's directory is followed, and nothing is opened that would wait.

use std::{
    fs::DirBuilder,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use rustix::{
    fd::{AsRawFd, OwnedFd},
    fs::{FileType, Mode, OFlags, ResolveFlags, fstat, mkdirat, open, openat2},
    io::Errno,
};

use super::ContainerMetadata;
use crate::{Error, error::failed};

const DIRECTORY_FLAGS: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
/// Without O_NONBLOCK a FIFO would be waited for.
const APPEND: OFlags =
    OFlags::WRONLY.union(OFlags::APPEND).union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// Opens the log to append to it, and makes it where it is not there, with the directories above. `None`: it has no
/// log. Blocks.
pub(crate) fn open_log(metadata: &ContainerMetadata) -> Result<Option<OwnedFd>, Error> {
    let Some(path) = &metadata.log_path else { return Ok(None) };
    let (directory, inside) = split(path, metadata.config.log_path.as_deref());
    open_below(&directory, inside).map(Some)
}

/// The same file as a mere place (`O_PATH`), which a monitor can be given and whose close never waits: that of a file
/// which is open for writing may wait for a server that is gone (NFS writes back then).
///
/// # Errors
/// `EMFILE`.
pub(crate) fn place(log: &OwnedFd) -> Result<OwnedFd, Error> {
    let path = format!("/proc/self/fd/{}", log.as_raw_fd());
    open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).map_err(failed("duplicate a log's descriptor"))
}

/// Opens the log to read it. `None`: it has none, or it is not there. Blocks.
pub(crate) fn read_log(metadata: &ContainerMetadata) -> Result<Option<OwnedFd>, Error> {
    let Some(path) = &metadata.log_path else { return Ok(None) };
    let (directory, inside) = split(path, metadata.config.log_path.as_deref());
    let operation = format!("open the log {}", path.display());
    let at = open(&directory, DIRECTORY_FLAGS, Mode::empty())
        .map_err(failed(format_args!("open {}", directory.display())))?;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    match below(&at, inside, flags) {
        Ok(log) => regular(log, &operation).map(Some),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(refused(operation, errno)),
    }
}

/// The pod's directory, and what the container names below it.
fn split<'a>(path: &'a Path, asked: Option<&Path>) -> (PathBuf, &'a Path) {
    let below =
        asked.filter(|asked| asked.is_relative() && path.ends_with(asked)).map(|asked| asked.components().count());
    let directory = path.ancestors().nth(below.unwrap_or(1)).unwrap_or(Path::new("/"));
    (directory.to_owned(), path.strip_prefix(directory).unwrap_or(path))
}

fn open_below(directory: &Path, inside: &Path) -> Result<OwnedFd, Error> {
    let operation = format!("open the log {}", directory.join(inside).display());
    // A log that is there is opened also where nothing can be made: mkdir(2) waits for a frozen file system before it
    // looks.
    let log = match open(directory, DIRECTORY_FLAGS, Mode::empty()).and_then(|at| below(&at, inside, APPEND)) {
        Err(Errno::NOENT) => create_below(directory, inside)?,
        opened => opened.map_err(|errno| refused(operation.clone(), errno))?,
    };
    regular(log, &operation)
}

fn regular(log: OwnedFd, operation: &str) -> Result<OwnedFd, Error> {
    match FileType::from_raw_mode(fstat(&log).map_err(failed(operation))?.st_mode) {
        FileType::RegularFile => Ok(log),
        kind => Err(Error::state(format!("{operation}: it is no ordinary file but a {kind:?}; remove it"))),
    }
}

fn create_below(directory: &Path, inside: &Path) -> Result<OwnedFd, Error> {
    let made = DirBuilder::new().recursive(true).mode(0o755).create(directory);
    made.map_err(failed(format_args!("create the log directory {}", directory.display())))?;
    let operation = |what: &str, path: &Path| format!("{what} {}", directory.join(path).display());
    let at = open(directory, DIRECTORY_FLAGS, Mode::empty())
        .map_err(failed(format_args!("open {}", directory.display())))?;
    let above: Vec<&Path> = inside.ancestors().skip(1).filter(|path| !path.as_os_str().is_empty()).collect();
    for path in above.into_iter().rev() {
        // In the directory that was looked at, not in what a link put in its place meanwhile.
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let parent = below(&at, parent, DIRECTORY_FLAGS)
            .map_err(|errno| refused(operation("open the log directory", parent), errno))?;
        match mkdirat(&parent, path.file_name().unwrap_or_default(), Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(failed(operation("create the log directory", path))(errno)),
        }
    }
    below(&at, inside, APPEND | OFlags::CREATE).map_err(|errno| refused(operation("open the log", inside), errno))
}

fn below(at: &OwnedFd, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let mode = if flags.contains(OFlags::CREATE) { Mode::from_raw_mode(0o640) } else { Mode::empty() };
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    loop {
        match openat2(at, path, flags, mode, resolve) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            opened => return opened,
        }
    }
}

fn refused(operation: String, errno: Errno) -> Error {
    match errno {
        Errno::LOOP => {
            Error::state(format!("{operation}: a symbolic link is in the way, which is not followed; remove it"))
        }
        // A FIFO that nobody reads.
        Errno::NXIO => Error::state(format!("{operation}: it is no ordinary file; remove it")),
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
    fn the_pods_directory_is_where_the_containers_path_begins() {
        let operation = |path, asked: Option<&str>| {
            let (directory, inside) = split(Path::new(path), asked.map(Path::new));
            (directory.display().to_string(), inside.display().to_string())
        };
        assert_eq!(operation("/pods/p/c/0.log", Some("c/0.log")), ("/pods/p".into(), "c/0.log".into()));
        assert_eq!(operation("/pods/p/0.log", Some("./0.log")), ("/pods/p".into(), "0.log".into()));
        assert_eq!(operation("/own.log", Some("/own.log")), ("/".into(), "own.log".into()));
        assert_eq!(operation("/a/own.log", None), ("/a".into(), "own.log".into()));
    }

    #[test]
    fn what_others_put_in_the_logs_place_is_neither_followed_nor_waited_for() {
        let directory = tempfile::tempdir().expect("directory");
        let pod = directory.path().join("pod");
        let open = |path: &str| open_below(&pod, Path::new(path));
        drop(open("c/0.log").expect("made with its directories"));
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
