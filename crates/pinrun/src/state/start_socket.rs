//! `<folder>/start`: a listening socket that the container's child holds until execve.

use rustix::{
    fd::{AsRawFd, BorrowedFd, OwnedFd},
    fs::{AtFlags, unlinkat},
    io::Errno,
    net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with},
};

use crate::{failure::Failure, state::Folder};

impl Folder {
    /// Makes it.
    pub(crate) fn listen(&self) -> Result<OwnedFd, Failure> {
        let make = || {
            let socket = socket()?;
            bind(&socket, &address(self.dir())?)?;
            listen(&socket, 4)?;
            Ok(socket)
        };
        make().map_err(|errno: Errno| Failure::io("make the socket over which the container is started", errno))
    }

    /// A connection to the child that waits; `None`: it does not wait any more.
    pub(crate) fn connect(&self) -> Result<Option<OwnedFd>, Failure> {
        let to_waiting = || {
            let socket = socket()?;
            connect(&socket, &address(self.dir())?).map(|()| socket)
        };
        match to_waiting() {
            Ok(socket) => Ok(Some(socket)),
            Err(Errno::NOENT | Errno::CONNREFUSED) => Ok(None),
            Err(errno) => Err(Failure::io("connect to the container that waits for its start", errno)),
        }
    }

    /// It was started: nobody listens any more.
    pub(crate) fn forget_start(&self) {
        // One that stays is refused by the kernel, and says the same.
        let _ = unlinkat(self.dir(), "start", AtFlags::empty());
    }
}

fn socket() -> Result<OwnedFd, Errno> {
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
}

/// The path of a socket has at most 107 bytes, the folder's may have more.
fn address(dir: BorrowedFd<'_>) -> Result<SocketAddrUnix, Errno> {
    SocketAddrUnix::new(format!("/proc/self/fd/{}/start", dir.as_raw_fd()))
}
