//! The socket as whoever started us handed it over: the daemon before in this process, or the service manager, which
//! may listen on it (`pinion.socket`) or have kept it over a restart (`FileDescriptorStoreMax=`); sd_listen_fds(3).

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

/// `<pid>:<descriptor>`, from the daemon before in the same process.
pub(super) const OWN: &str = "PINION_LISTENER";
/// Where the service manager's descriptors begin.
const FIRST: i32 = 3;
/// Most that are looked at.
const MOST: i32 = 64;

/// What was handed over. To be taken once, before anything else is opened.
#[derive(Debug, Default)]
pub(super) struct Handed(Vec<OwnedFd>);

impl Handed {
    /// Takes what is there for this process.
    pub(super) fn take() -> Self {
        let own = std::process::id().to_string();
        let text = |name: &str| env::var(name).unwrap_or_default();
        let mut numbers = Vec::new();
        if text("LISTEN_PID") == own {
            let count: i32 = text("LISTEN_FDS").parse().unwrap_or(0);
            numbers.extend(FIRST..FIRST + count.clamp(0, MOST));
        }
        if let Some((pid, number)) = text(OWN).split_once(':')
            && pid == own
        {
            numbers.extend(number.parse::<i32>().ok().filter(|number| !numbers.contains(number)));
        }
        Self(numbers.into_iter().filter_map(|number| take_inherited(number).ok()).collect())
    }

    /// The socket that listens on this path, if it is still what clients find there.
    pub(super) fn listener(self, path: &Path) -> Option<UnixListener> {
        let found = self.0.into_iter().find(|file| listens_on(file, path))?;
        // A file that was taken away leaves a socket that nobody can find.
        path.exists().then(|| UnixListener::from(found))
    }
}

fn listens_on(file: &OwnedFd, path: &Path) -> bool {
    let address = rustix::net::getsockname(file.as_fd()).ok().and_then(|any| SocketAddrUnix::try_from(any).ok());
    let bound = address.and_then(|address| address.path().map(|bound| Path::new(to_os(bound.to_bytes())).to_owned()));
    // The daemon binds under another name in the same directory and renames it.
    let same = |bound: &Path| bound == path || bound.parent() == path.parent() && bound.file_stem() == path.file_stem();
    bound.as_deref().is_some_and(same) && sockopt::socket_acceptconn(file).unwrap_or(false)
}

fn to_os(bytes: &[u8]) -> &std::ffi::OsStr {
    std::os::unix::ffi::OsStrExt::from_bytes(bytes)
}
