use std::{
    collections::HashSet,
    fmt, io,
    path::{Path, PathBuf},
    sync::{LazyLock, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use serde::{Deserialize, Serialize};
use tokio::{net::UnixStream, sync::oneshot};

/// Longest path of a Unix socket, see unix(7).
const PATH_MAX: usize = 107;
/// Most threads that connect, or hang in the file system of the path.
const CONNECTING_MAX: usize = 64;

/// Pause until it is checked again whether another thread has connected to the same path.
const PAUSE: Duration = Duration::from_millis(5);

/// Paths that a thread connects to.
static CONNECTING: LazyLock<Mutex<HashSet<PathBuf>>> = LazyLock::new(Mutex::default);

/// The address at which a shim serves: a Unix socket.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Address {
    /// `unix:///path`
    Path(PathBuf),
    /// A name in the abstract namespace, without the NUL byte at its beginning.
    Abstract(String),
}

impl Address {
    /// Parses an address: `unix://` and an absolute path, or the name of an abstract socket.
    ///
    /// # Errors
    /// The reason why it cannot be used: another protocol, such as vsock, or an invalid path.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.strip_prefix("ttrpc+").unwrap_or(text);
        let is_short = |length: usize| match (1..=PATH_MAX).contains(&length) {
            true => Ok(()),
            false => Err(format!("{length} bytes; a Unix socket has 1 to {PATH_MAX}")),
        };
        match text.split_once("://") {
            Some(("unix", path)) => {
                is_short(path.len())?;
                if !path.starts_with('/') || path.contains('\0') {
                    return Err(format!("{path:?} is not an absolute path"));
                }
                Ok(Self::Path(path.into()))
            }
            Some((protocol, _)) => Err(format!("the protocol {protocol:?} is not supported; unix is")),
            None => {
                let name = text.strip_prefix('@').unwrap_or(text).trim_end_matches('\0');
                is_short(name.len())?;
                match name.chars().all(|character| character.is_ascii_graphic()) {
                    true => Ok(Self::Abstract(name.to_owned())),
                    false => Err(format!("{name:?} is not the name of a socket")),
                }
            }
        }
    }

    /// Returns its path in the file system, if it has one.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Path(path) => Some(path),
            Self::Abstract(_) => None,
        }
    }

    /// Connects. A shim with a full backlog is one that does not answer: this does not wait for it.
    pub(crate) async fn connect(&self) -> io::Result<UnixStream> {
        match self {
            Self::Path(path) => connect_to_path(path).await,
            // A path that begins with a NUL byte is a name, see unix(7).
            Self::Abstract(name) => UnixStream::connect(format!("\0{name}")).await,
        }
    }
}

fn connecting() -> MutexGuard<'static, HashSet<PathBuf>> {
    CONNECTING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Registers a thread that connects to a path. `false`: there is one.
fn register(path: &Path) -> io::Result<bool> {
    let mut connecting = connecting();
    if connecting.contains(path) {
        return Ok(false);
    }
    if connecting.len() >= CONNECTING_MAX {
        return Err(io::Error::other("the connections to other shims hang in the file systems of their sockets"));
    }
    Ok(connecting.insert(path.to_owned()))
}

/// Connects on a thread of its own: the path is chosen by the shim, and its lookup may wait forever, for example for a
/// server of FUSE. At most one thread hangs for a path.
async fn connect_to_path(path: &Path) -> io::Result<UnixStream> {
    while !register(path)? {
        tokio::time::sleep(PAUSE).await;
    }
    let (sender, receiver) = oneshot::channel();
    let work = {
        let path = path.to_owned();
        move || {
            let connected = connect_without_waiting(&path);
            connecting().remove(&path);
            // Without a receiver the connection is closed.
            let _ = sender.send(connected);
        }
    };
    if let Err(error) = thread::Builder::new().name("shim-connect".to_owned()).spawn(work) {
        connecting().remove(path);
        return Err(error);
    }
    let connected = receiver.await.map_err(|_| io::Error::other("its thread ended"))??;
    UnixStream::from_std(connected)
}

/// Fails with `WouldBlock` if the backlog is full.
fn connect_without_waiting(path: &Path) -> io::Result<std::os::unix::net::UnixStream> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket.into())
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => write!(f, "unix://{}", path.display()),
            Self::Abstract(name) => write!(f, "@{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn connections_are_made_to_a_path_and_errors_are_those_of_connect() {
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join("s");
        let address = Address::Path(path.clone());
        assert_eq!(address.connect().await.expect_err("missing").kind(), io::ErrorKind::NotFound);
        let _listener = std::os::unix::net::UnixListener::bind(&path).expect("bind");
        address.connect().await.expect("connected");
        // While a thread hangs in the lookup of a path, no other one is started for it.
        connecting().insert(path.clone());
        let attempt = tokio::time::timeout(Duration::from_millis(50), address.connect());
        attempt.await.expect_err("it waits for the other thread");
        connecting().remove(&path);
        address.connect().await.expect("connected again");
    }

    #[test]
    fn unix_sockets_are_understood_and_nothing_else() {
        assert_eq!(Address::parse("unix:///run/s"), Ok(Address::Path("/run/s".into())));
        assert_eq!(Address::parse("ttrpc+unix:///run/s"), Ok(Address::Path("/run/s".into())));
        assert_eq!(Address::parse("/containerd-shim/a.sock"), Ok(Address::Abstract("/containerd-shim/a.sock".into())));
        for bad in ["vsock://3:1024", "grpc+unix:///run/s", "unix://", "unix://relative", "", "two words", "a\nb"] {
            assert!(Address::parse(bad).is_err(), "{bad:?}");
        }
        assert!(Address::parse(&format!("unix:///{}", "x".repeat(200))).is_err());
    }
}
