//! Stdio of a container, which outlives the monitor: FIFOs on the tmpfs of the state directory.
//!
//! ```text
//! container 1, 2   O_RDWR ──▶ FIFO ──▶ O_RDONLY, monitor → log     this process keeps a duplicate of the read end
//! container 0    O_RDONLY ◀── FIFO ◀── O_WRONLY, held by the monitor and by this process; clients open it by path
//! ```
//! The container's own descriptors keep an output FIFO open in both directions, so that the death of the monitor causes
//! neither a SIGPIPE nor a loss of output. Its input ends when all write ends are closed: those of the monitor, of this
//! process and of the clients.

use std::{io, path::Path, sync::Arc, time::Instant};

use monitor_api::{Attachments, Role};
use rustix::{
    fd::OwnedFd,
    fs::{CWD, FileType, Mode, OFlags},
    io::Errno,
};

use super::SharedPipe;
use crate::{
    ContainerConfig, Error,
    error::failed,
    operation::retry,
    store::{PipeCalls, STDIN},
};

/// For each output: name of the FIFO, role of the container's end, role of the monitor's end.
const OUTPUTS: [(&str, Role, Role); 2] =
    [("stdout", Role::Stdout, Role::StdoutRead), ("stderr", Role::Stderr, Role::StderrRead)];

/// Descriptors that are sent to the monitor, and the duplicates that this process keeps.
#[derive(Debug, Default)]
pub(crate) struct Stdio {
    pub(crate) send: Attachments,
    pub(crate) keep: Attachments,
}

/// How the process of a container gets its streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamUser {
    /// As descriptors, which the monitor passes on. A terminal is made by the monitor or an OCI runtime.
    Process,
    /// By the paths of the FIFOs, which a shim opens and closes when it likes. With a terminal, the shim moves its input
    /// and output through them.
    Shim,
}

impl Stdio {
    /// Creates and opens the FIFOs in the container's state directory. A container with a terminal of the monitor needs no
    /// FIFOs.
    pub(crate) fn create(directory: &Path, config: &ContainerConfig, user: StreamUser) -> Result<Self, Error> {
        let mut stdio = Self::default();
        if config.tty && user == StreamUser::Process {
            return Ok(stdio);
        }
        for (name, container, monitor) in outputs(config) {
            let path = directory.join(name);
            create_fifo(&path)?;
            if user == StreamUser::Process {
                stdio.send.push(container, open(&path, OFlags::RDWR)?);
            }
            stdio.push_both(monitor, open(&path, user.read_flags())?)?;
        }
        if config.stdin {
            let path = directory.join(STDIN);
            create_fifo(&path)?;
            // Opening one end of a FIFO blocks until the other one is open.
            let _bridge = open(&path, OFlags::RDWR)?;
            if user == StreamUser::Process {
                stdio.send.push(Role::Stdin, open(&path, OFlags::RDONLY)?);
            }
            stdio.push_both(Role::StdinHold, open(&path, OFlags::WRONLY)?)?;
        }
        Ok(stdio)
    }

    /// Opens the ends again that a monitor needs for a running container, after all descriptors were lost. Waits until
    /// `until` for a FIFO whose lock a process of the container holds.
    pub(crate) async fn reopen(
        directory: &Path,
        config: &ContainerConfig,
        user: StreamUser,
        calls: &Arc<PipeCalls>,
        until: Instant,
    ) -> Attachments {
        let mut files = Attachments::new();
        if config.tty && user == StreamUser::Process {
            return files;
        }
        for (name, _, monitor) in outputs(config) {
            let path = directory.join(name);
            let open = move |path: &Path| match retry(|| Ok(open_once(path, user.read_flags())?)) {
                // The container was created without this FIFO.
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                opened => opened.map(Some).map_err(failed("open a FIFO")),
            };
            match SharedPipe::open(calls, &path, until, open).await {
                Ok(pipe) => pipe.and_then(SharedPipe::into_file).into_iter().for_each(|file| files.push(monitor, file)),
                Err(error) => tracing::warn!("open {} again: {error}; the container's output is lost", path.display()),
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

    /// Adds a descriptor to send, and keeps a duplicate.
    pub(crate) fn push_both(&mut self, role: Role, file: OwnedFd) -> Result<(), Error> {
        self.keep.push(role, file.try_clone().map_err(failed("duplicate a descriptor"))?);
        self.send.push(role, file);
        Ok(())
    }
}

impl StreamUser {
    /// Returns how the monitor's end of an output is opened. An output that a shim opens never ends for the monitor: the
    /// shim may not have it open yet, or not anymore.
    fn read_flags(self) -> OFlags {
        match self {
            Self::Process => OFlags::RDONLY | OFlags::NONBLOCK,
            Self::Shim => OFlags::RDWR | OFlags::NONBLOCK,
        }
    }
}

/// Returns the outputs of a container: a terminal has only one.
fn outputs(config: &ContainerConfig) -> impl Iterator<Item = (&'static str, Role, Role)> {
    OUTPUTS.into_iter().take(if config.tty { 1 } else { OUTPUTS.len() })
}

/// Opens a client's write end of a container's input. Fails if no process reads it any longer.
pub(crate) async fn open_stdin(
    directory: &Path,
    calls: &Arc<PipeCalls>,
    until: Instant,
) -> Result<Option<SharedPipe>, Error> {
    let open = |path: &Path| open(path, OFlags::WRONLY | OFlags::NONBLOCK).map(Some);
    SharedPipe::open(calls, &directory.join(STDIN), until, open).await
}

pub(crate) fn create_fifo(path: &Path) -> Result<(), Error> {
    match rustix::fs::mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o600), 0) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(failed(format_args!("create FIFO {}", path.display()))(errno)),
    }
}

pub(crate) fn open(path: &Path, flags: OFlags) -> Result<OwnedFd, Error> {
    open_once(path, flags).map_err(failed(format_args!("open {}", path.display())))
}

fn open_once(path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    rustix::fs::open(path, flags | OFlags::CLOEXEC | OFlags::NOCTTY, Mode::empty())
}
