//! Takes over the listening socket: from the previous daemon in this process, or from the service manager, which may
//! have created it (`pinion.socket`) or stored it over a restart (`FileDescriptorStoreMax=`); sd_listen_fds(3).

use std::{
    env,
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixListener,
    },
    path::Path,
};

use rustix::net::{SocketAddrUnix, sockopt};
use syscall::inherited::take_inherited;

/// Environment variable with `<pid>:<descriptor>`, set by the previous daemon in the same process.
pub(super) const LISTENER: &str = "PINION_LISTENER";
/// First descriptor of the service manager (`SD_LISTEN_FDS_START`).
const LISTEN_FDS_START: i32 = 3;
/// Maximum number of descriptors from the service manager.
const LISTEN_FDS_MAX: i32 = 64;

/// The inherited descriptors. Must be taken once, before any other file is opened.
#[derive(Debug, Default)]
pub(super) struct InheritedSockets(Vec<OwnedFd>);

impl InheritedSockets {
    /// Takes the descriptors that are intended for this process.
    pub(super) fn take() -> Self {
        let own_pid = std::process::id().to_string();
        let text = |name: &str| env::var(name).unwrap_or_default();
        let mut numbers = Vec::new();
        if text("LISTEN_PID") == own_pid {
            let count: i32 = text("LISTEN_FDS").parse().unwrap_or(0);
            numbers.extend(LISTEN_FDS_START..LISTEN_FDS_START + count.clamp(0, LISTEN_FDS_MAX));
        }
        if let Some((pid, number)) = text(LISTENER).split_once(':')
            && pid == own_pid
        {
            numbers.extend(number.parse::<i32>().ok().filter(|number| !numbers.contains(number)));
        }
        Self(numbers.into_iter().filter_map(|number| take_inherited(number).ok()).collect())
    }

    /// Returns the socket that listens on this path, if clients can still find it there.
    pub(super) fn listener(self, path: &Path) -> Option<UnixListener> {
        let socket = self.0.into_iter().find(|file| listens_on(file, path))?;
        // If the file was removed, no client can connect to the socket.
        path.exists().then(|| UnixListener::from(socket))
    }
}

fn listens_on(file: &OwnedFd, path: &Path) -> bool {
    let address = rustix::net::getsockname(file.as_fd()).ok().and_then(|any| SocketAddrUnix::try_from(any).ok());
    let bound = address.and_then(|address| address.path().map(|bound| Path::new(to_os(bound.to_bytes())).to_owned()));
    // The daemon binds the socket under another name in the same directory and renames it.
    let same = |bound: &Path| bound == path || bound.parent() == path.parent() && bound.file_stem() == path.file_stem();
    bound.as_deref().is_some_and(same) && sockopt::socket_acceptconn(file).unwrap_or(false)
}

fn to_os(bytes: &[u8]) -> &std::ffi::OsStr {
    std::os::unix::ffi::OsStrExt::from_bytes(bytes)
}
