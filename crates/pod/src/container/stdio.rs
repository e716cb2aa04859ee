//! Standard streams that outlive the monitor: FIFOs on the state tmpfs.
//!
//! ```text
//! container 1, 2   O_RDWR ──▶ FIFO ──▶ O_RDONLY, monitor → log     a duplicate of the read end stays here
//! container 0    O_RDONLY ◀── FIFO ◀── O_WRONLY, held by the monitor and here; clients open it by path
//! ```
//! The container's own descriptors keep an output FIFO open in both directions, so that a dead monitor is neither a
//! SIGPIPE nor a loss. Its input ends when all write ends are closed: that of the monitor, ours and the clients'.

use std::{io, path::Path, sync::Arc, time::Instant};

use monitor_api::{Attachments, Role};
use rustix::{
    fd::OwnedFd,
    fs::{CWD, FileType, Mode, OFlags},
    io::Errno,
};

use super::ContainerConfig;
use crate::{
    Error, attempts,
    error::failed,
    session::{PipeCalls, SharedPipe},
};

/// All that may be there.
pub(crate) const FIFOS: [&str; 3] = [STDIN, "stdout", "stderr"];
const STDIN: &str = "stdin";
/// Name of the FIFO, the container's end, the monitor's.
const OUTPUTS: [(&str, Role, Role); 2] =
    [("stdout", Role::Stdout, Role::StdoutRead), ("stderr", Role::Stderr, Role::StderrRead)];

/// What goes to the monitor, and what stays in custody.
#[derive(Debug, Default)]
pub(crate) struct Stdio {
    pub(crate) send: Attachments,
    pub(crate) keep: Attachments,
}

impl Stdio {
    /// Makes the FIFOs in the record's directory; a container with a terminal needs none.
    pub(crate) fn make(directory: &Path, config: &ContainerConfig) -> Result<Self, Error> {
        let mut stdio = Self::default();
        if config.tty {
            return Ok(stdio);
        }
        for (name, container, monitor) in OUTPUTS {
            let path = directory.join(name);
            make_fifo(&path)?;
            stdio.send.push(container, open(&path, OFlags::RDWR)?);
            stdio.both(monitor, open(&path, OFlags::RDONLY | OFlags::NONBLOCK)?)?;
        }
        if config.stdin {
            let path = directory.join(STDIN);
            make_fifo(&path)?;
            // Neither end can be opened alone without waiting for the other.
            let _bridge = open(&path, OFlags::RDWR)?;
            stdio.send.push(Role::Stdin, open(&path, OFlags::RDONLY)?);
            stdio.both(Role::StdinHold, open(&path, OFlags::WRONLY)?)?;
        }
        Ok(stdio)
    }

    /// The ends that a monitor needs for a container that runs already, when all duplicates were lost. A FIFO that is
    /// not locked is waited for until then.
    pub(crate) async fn again(
        directory: &Path,
        config: &ContainerConfig,
        calls: &Arc<PipeCalls>,
        until: Instant,
    ) -> Attachments {
        let mut files = Attachments::new();
        if config.tty {
            return files;
        }
        for (name, _, monitor) in OUTPUTS {
            let path = directory.join(name);
            let open = |path: &Path| match attempts::repeat(|| Ok(open_once(path, OFlags::RDONLY | OFlags::NONBLOCK)?))
            {
                // A container that could have none.
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                opened => opened.map(Some).map_err(failed("open a FIFO")),
            };
            match calls.open(&path, until, open).await {
                Ok(pipe) => pipe.and_then(SharedPipe::into_file).into_iter().for_each(|file| files.push(monitor, file)),
                Err(error) => tracing::warn!("{}: its output is lost: {error}", path.display()),
            }
        }
        if config.stdin && !config.stdin_once {
            let pipe = open_stdin(directory, calls, until).await;
            pipe.ok()
                .flatten()
                .and_then(SharedPipe::into_file)
                .into_iter()
                .for_each(|file| files.push(Role::StdinHold, file));
        }
        files
    }

    pub(crate) fn both(&mut self, role: Role, file: OwnedFd) -> Result<(), Error> {
        self.keep.push(role, file.try_clone().map_err(failed("duplicate a descriptor"))?);
        self.send.push(role, file);
        Ok(())
    }
}

/// A client's write end of a container's input. Fails when nobody reads any more.
pub(crate) async fn open_stdin(
    directory: &Path,
    calls: &Arc<PipeCalls>,
    until: Instant,
) -> Result<Option<SharedPipe>, Error> {
    let open = |path: &Path| open(path, OFlags::WRONLY | OFlags::NONBLOCK).map(Some);
    calls.open(&directory.join(STDIN), until, open).await
}

fn make_fifo(path: &Path) -> Result<(), Error> {
    match rustix::fs::mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o600), 0) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(failed(format_args!("make FIFO {}", path.display()))(errno)),
    }
}

fn open(path: &Path, flags: OFlags) -> Result<OwnedFd, Error> {
    open_once(path, flags).map_err(failed(format_args!("open {}", path.display())))
}

fn open_once(path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    rustix::fs::open(path, flags | OFlags::CLOEXEC | OFlags::NOCTTY, Mode::empty())
}
