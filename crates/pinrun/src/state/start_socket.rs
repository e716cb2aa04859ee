//! `<directory>/start`: a listening socket that the container's init holds open until execve.

use rustix::{
    fd::{AsRawFd, BorrowedFd, OwnedFd},
    fs::{AtFlags, unlinkat},
    io::Errno,
    net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with},
};

use crate::{failure::Failure, state::Directory};

/// Connections that may be queued while the init handles the one that starts it.
const BACKLOG: i32 = 64;

impl Directory {
    /// Creates the socket and listens on it.
    pub(crate) fn listen(&self) -> Result<OwnedFd, Failure> {
        let create = || {
            let socket = socket(SocketFlags::empty())?;
            bind(&socket, &address(self.dir())?)?;
            listen(&socket, BACKLOG)?;
            Ok(socket)
        };
        create().map_err(|errno: Errno| Failure::io("create the start socket of the container", errno))
    }

    /// Connects to the init that waits for its start. Returns `None` if it does not wait any longer.
    pub(crate) fn connect(&self) -> Result<Option<OwnedFd>, Failure> {
        let connected = || {
            let socket = socket(SocketFlags::empty())?;
            connect(&socket, &address(self.dir())?).map(|()| socket)
        };
        match connected() {
            Ok(socket) => Ok(Some(socket)),
            Err(Errno::NOENT | Errno::CONNREFUSED) => Ok(None),
            Err(errno) => Err(Failure::io("connect to the start socket of the container", errno)),
        }
    }

    /// Reports whether the init waits for its start, or is being started. Does not block: a full queue of connections
    /// (while the start hooks run) also means that a process listens.
    pub(crate) fn is_waiting(&self) -> Result<bool, Failure> {
        let probe = || connect(&socket(SocketFlags::NONBLOCK)?, &address(self.dir())?);
        match probe() {
            Ok(()) | Err(Errno::AGAIN) => Ok(true),
            Err(Errno::NOENT | Errno::CONNREFUSED) => Ok(false),
            Err(errno) => Err(Failure::io("check whether the container waits for its start", errno)),
        }
    }

    /// Removes the socket after the container was started.
    pub(crate) fn remove_start_socket(&self) {
        // If this fails, connections to the socket are refused, which has the same meaning.
        let _ = unlinkat(self.dir(), "start", AtFlags::empty());
    }
}

fn socket(flags: SocketFlags) -> Result<OwnedFd, Errno> {
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags | SocketFlags::CLOEXEC, None)
}

/// Returns the socket's address through a descriptor: sun_path holds 107 bytes, and the directory's path may be longer.
fn address(dir: BorrowedFd<'_>) -> Result<SocketAddrUnix, Errno> {
    SocketAddrUnix::new(format!("/proc/self/fd/{}/start", dir.as_raw_fd()))
}
