//! `<directory>/start`: a listening socket that the container's child holds until execve.

use rustix::{
    fd::{AsRawFd, BorrowedFd, OwnedFd},
    fs::{AtFlags, unlinkat},
    io::Errno,
    net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with},
};

use crate::{failure::Failure, state::Directory};

/// Connections that wait while the child is busy with the one that starts it.
const BACKLOG: i32 = 64;

impl Directory {
    /// Makes it.
    pub(crate) fn listen(&self) -> Result<OwnedFd, Failure> {
        let make = || {
            let socket = socket(SocketFlags::empty())?;
            bind(&socket, &address(self.dir())?)?;
            listen(&socket, BACKLOG)?;
            Ok(socket)
        };
        make().map_err(|errno: Errno| Failure::io("make the socket over which the container is started", errno))
    }

    /// A connection to the child that waits; `None`: it does not wait any more.
    pub(crate) fn connect(&self) -> Result<Option<OwnedFd>, Failure> {
        let to_waiting = || {
            let socket = socket(SocketFlags::empty())?;
            connect(&socket, &address(self.dir())?).map(|()| socket)
        };
        match to_waiting() {
            Ok(socket) => Ok(Some(socket)),
            Err(Errno::NOENT | Errno::CONNREFUSED) => Ok(None),
            Err(errno) => Err(Failure::io("connect to the container that waits for its start", errno)),
        }
    }

    /// Whether the child waits for its start, or is just being started. Never waits itself: a queue full of such
    /// questions (while the start hooks run) says that somebody listens.
    pub(crate) fn is_waiting(&self) -> Result<bool, Failure> {
        let ask = || connect(&socket(SocketFlags::NONBLOCK)?, &address(self.dir())?);
        match ask() {
            Ok(()) | Err(Errno::AGAIN) => Ok(true),
            Err(Errno::NOENT | Errno::CONNREFUSED) => Ok(false),
            Err(errno) => Err(Failure::io("ask whether the container waits for its start", errno)),
        }
    }

    /// It was started: nobody listens any more.
    pub(crate) fn forget_start(&self) {
        // One that stays is refused by the kernel, and says the same.
        let _ = unlinkat(self.dir(), "start", AtFlags::empty());
    }
}

fn socket(flags: SocketFlags) -> Result<OwnedFd, Errno> {
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags | SocketFlags::CLOEXEC, None)
}

/// The path of a socket has at most 107 bytes, the directory's may have more.
fn address(dir: BorrowedFd<'_>) -> Result<SocketAddrUnix, Errno> {
    SocketAddrUnix::new(format!("/proc/self/fd/{}/start", dir.as_raw_fd()))
}
