//! Socket between daemon and monitor: `<state>/monitor.sock`, mode 0600.
//!
//! The daemon binds it and passes the listener to the monitor that it starts. The monitor keeps the listener open when
//! the daemon dies, so a restarted daemon calls [`connect`] first, and may only [`bind`] the socket again if that
//! returns [`SocketError::Absent`].

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

/// Name of the socket in the state directory.
pub const SOCKET_NAME: &str = "monitor.sock";
/// Maximum number of connections that wait to be accepted.
const BACKLOG: i32 = 8;

/// Error of binding, connecting or accepting.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// No monitor listens on the socket.
    #[error("no monitor listens on {}", .0.display())]
    Absent(PathBuf),
    /// The peer is not root.
    #[error("connection to {} refused: the peer has uid {uid}, not 0", path.display())]
    PeerNotRoot {
        /// Path of the socket.
        path: PathBuf,
        /// User id of the peer.
        uid: u32,
    },
    /// A system call failed.
    #[error("{operation} {}: {source}", path.display())]
    Io {
        /// The operation.
        operation: &'static str,
        /// The path that it failed for.
        path: PathBuf,
        /// Error of the system call.
        source: io::Error,
    },
}

impl SocketError {
    /// Returns the category, in terms of the standard library.
    pub fn kind(&self) -> io::ErrorKind {
        match self {
            Self::Absent(_) => io::ErrorKind::NotFound,
            Self::PeerNotRoot { .. } => io::ErrorKind::PermissionDenied,
            Self::Io { source, .. } => source.kind(),
        }
    }

    /// Returns the operation that failed.
    pub fn operation(&self) -> &'static str {
        match self {
            Self::Absent(_) | Self::PeerNotRoot { .. } => "connect to",
            Self::Io { operation, .. } => operation,
        }
    }

    /// Returns the path of the socket.
    pub fn object(&self) -> &Path {
        let (Self::Absent(path) | Self::PeerNotRoot { path, .. } | Self::Io { path, .. }) = self;
        path
    }
}

/// Returns the path of the socket in this state directory.
pub fn socket_path(state: &Path) -> PathBuf {
    state.join(SOCKET_NAME)
}

/// Binds the socket and listens on it; it is close-on-exec and non-blocking, with mode 0600. An existing socket is
/// replaced atomically.
pub fn bind(state: &Path) -> Result<OwnedFd, SocketError> {
    let path = socket_path(state);
    let failed = |operation| {
        let path = path.clone();
        move |errno: Errno| SocketError::Io { operation, path, source: errno.into() }
    };
    let (directory, socket) = (open_directory(state)?, socket(&path, SocketFlags::NONBLOCK)?);
    // bind(2) gives the file the mode of the socket, so it is never accessible to others.
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR).map_err(failed("fchmod"))?;
    let temporary = format!("{SOCKET_NAME}.{}", rustix::process::getpid().as_raw_nonzero());
    let _ = rustix::fs::unlinkat(&directory, &temporary, rustix::fs::AtFlags::empty());
    let address = address(&directory, &temporary).map_err(failed("address"))?;
    rustix::net::bind(&socket, &address).map_err(failed("bind"))?;
    rustix::net::listen(&socket, BACKLOG).map_err(failed("listen"))?;
    rustix::fs::renameat(&directory, &temporary, &directory, SOCKET_NAME).map_err(failed("rename"))?;
    Ok(socket)
}

/// Removes temporary sockets that a process left over when it died in [`bind`]. Only for the owner of the state
/// directory, while no process binds.
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

/// Connects to the monitor of this state directory; the peer must be root. The socket is blocking and close-on-exec.
/// Connecting never blocks: it fails with `EAGAIN` if a hung monitor has a full backlog.
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

/// Accepts a connection, non-blocking and close-on-exec; the peer must be root. Returns `None` if no connection is
/// pending.
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
        uid => Err(SocketError::PeerNotRoot { path: path.to_owned(), uid }),
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

/// Returns an address relative to a descriptor: a Unix address holds 107 bytes, and the path of a state directory may
/// be longer.
fn address(directory: &OwnedFd, name: &str) -> Result<SocketAddrUnix, Errno> {
    let path = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd())).join(name);
    SocketAddrUnix::new(path.as_os_str().as_bytes())
}

#[cfg(test)]
mod tests;
