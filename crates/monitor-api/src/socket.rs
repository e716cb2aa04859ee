//! Where daemon and monitor meet: `<state>/monitor.sock`, 0600.
//!
//! The daemon binds it and hands the listener to a monitor it starts. A monitor outlives the daemon with that listener,
//! so a restarted daemon first tries [`connect`]; only where that answers [`SocketError::Absent`] it may [`bind`] anew.

use std::{
    io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use rustix::{
    fd::{AsFd, AsRawFd, OwnedFd},
    fs::{Mode, OFlags},
    io::Errno,
    net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt},
};

use crate::Connection;

/// The socket's name in the state directory.
pub const SOCKET_NAME: &str = "monitor.sock";
/// Connections that may wait to be accepted.
const BACKLOG: i32 = 8;

/// Why daemon and monitor could not meet.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// No monitor listens there.
    #[error("no monitor listens on {}", .0.display())]
    Absent(PathBuf),
    /// The other side is not root.
    #[error("the peer of {} has uid {uid}, not 0: refused", path.display())]
    Stranger {
        /// The socket.
        path: PathBuf,
        /// Who is there.
        uid: u32,
    },
    /// The kernel refused.
    #[error("{operation} {}: {source}", path.display())]
    Io {
        /// What was tried.
        operation: &'static str,
        /// On which path.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
}

/// The socket of this state directory.
pub fn socket_path(state: &Path) -> PathBuf {
    state.join(SOCKET_NAME)
}

/// Binds and listens, 0600, close-on-exec, non-blocking. What was there before is replaced in one step.
pub fn bind(state: &Path) -> Result<OwnedFd, SocketError> {
    let path = socket_path(state);
    let failed = |operation| {
        let path = path.clone();
        move |errno: Errno| SocketError::Io { operation, path, source: errno.into() }
    };
    let (directory, socket) = (open_directory(state)?, socket(&path, SocketFlags::NONBLOCK)?);
    // The mode that bind(2) gives the file is the socket's own, so there is no moment at which it is open to others.
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR).map_err(failed("fchmod"))?;
    let fresh = format!("{SOCKET_NAME}.{}", rustix::process::getpid().as_raw_nonzero());
    let _ = rustix::fs::unlinkat(&directory, &fresh, rustix::fs::AtFlags::empty());
    let address = address(&directory, &fresh).map_err(failed("address"))?;
    rustix::net::bind(&socket, &address).map_err(failed("bind"))?;
    rustix::net::listen(&socket, BACKLOG).map_err(failed("listen"))?;
    rustix::fs::renameat(&directory, &fresh, &directory, SOCKET_NAME).map_err(failed("rename"))?;
    Ok(socket)
}

/// Removes what a process that died in [`bind`] left beside the socket's name. By the state directory's one owner,
/// while nobody binds.
pub fn sweep(state: &Path) -> io::Result<()> {
    let prefix = format!("{SOCKET_NAME}.");
    for entry in std::fs::read_dir(state)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(&prefix) {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Connects to the monitor of this state directory (blocking socket, close-on-exec); the peer must be root. Never
/// blocks: `EAGAIN` where a hung monitor has a full backlog.
pub fn connect(state: &Path) -> Result<Connection, SocketError> {
    let path = socket_path(state);
    let failed = |operation| {
        let path = path.clone();
        move |errno: Errno| match errno {
            Errno::NOENT | Errno::CONNREFUSED => SocketError::Absent(path),
            errno => SocketError::Io { operation, path, source: errno.into() },
        }
    };
    let (directory, socket) = (open_directory(state)?, socket(&path, SocketFlags::NONBLOCK)?);
    let address = address(&directory, SOCKET_NAME).map_err(failed("address"))?;
    rustix::net::connect(&socket, &address).map_err(failed("connect"))?;
    rustix::io::ioctl_fionbio(&socket, false).map_err(failed("set blocking"))?;
    check_peer(&socket, &path)?;
    Ok(Connection::new(socket))
}

/// Accepts a connection (non-blocking, close-on-exec); the peer must be root. `None`: none waits.
pub fn accept(listener: impl AsFd) -> Result<Option<Connection>, SocketError> {
    let path = PathBuf::from(SOCKET_NAME);
    match rustix::net::accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
        Ok(socket) => {
            check_peer(&socket, &path)?;
            Ok(Some(Connection::new(socket)))
        }
        Err(Errno::AGAIN | Errno::CONNABORTED | Errno::INTR) => Ok(None),
        Err(errno) => Err(SocketError::Io { operation: "accept on", path, source: errno.into() }),
    }
}

fn check_peer(socket: &OwnedFd, path: &Path) -> Result<(), SocketError> {
    let peer = sockopt::socket_peercred(socket).map_err(|errno| SocketError::Io {
        operation: "SO_PEERCRED of",
        path: path.to_owned(),
        source: errno.into(),
    })?;
    match peer.uid.as_raw() {
        0 => Ok(()),
        uid => Err(SocketError::Stranger { path: path.to_owned(), uid }),
    }
}

fn socket(path: &Path, flags: SocketFlags) -> Result<OwnedFd, SocketError> {
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags | SocketFlags::CLOEXEC, None)
        .map_err(|errno| SocketError::Io { operation: "socket for", path: path.to_owned(), source: errno.into() })
}

fn open_directory(state: &Path) -> Result<OwnedFd, SocketError> {
    rustix::fs::open(state, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).map_err(|errno| {
        match errno {
            Errno::NOENT => SocketError::Absent(socket_path(state)),
            errno => SocketError::Io { operation: "open", path: state.to_owned(), source: errno.into() },
        }
    })
}

/// By descriptor: a Unix address holds 107 bytes, a state directory may be longer.
fn address(directory: &OwnedFd, name: &str) -> Result<SocketAddrUnix, Errno> {
    let path = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd())).join(name);
    SocketAddrUnix::new(path.as_os_str().as_bytes())
}

#[cfg(test)]
mod tests;
