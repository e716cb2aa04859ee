use std::{
    fmt,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use tokio::net::UnixStream;

/// Longest path of a Unix socket, see unix(7).
const PATH_MAX: usize = 107;

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
    pub(crate) async fn connect(&self) -> std::io::Result<UnixStream> {
        match self {
            Self::Path(path) => UnixStream::connect(path).await,
            // A path that begins with a NUL byte is a name, see unix(7).
            Self::Abstract(name) => UnixStream::connect(format!("\0{name}")).await,
        }
    }
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
