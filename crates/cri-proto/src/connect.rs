use std::path::{Path, PathBuf};

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Error};

/// Maximum size of a message that a client should accept, in bytes. Lists of thousands of pods with labels exceed
/// gRPC's default of 4 MiB. Kubelet and crictl use the same limit.
pub const MESSAGE_MAX: usize = 16 * 1024 * 1024;

/// Maximum size of the header fields of a response, in bytes. A failure's message is sent percent-encoded, and with
/// details once more in base64; it may contain the `$PATH` of a container.
const HEADERS_MAX: u32 = 64 * 1024;

/// How much a server may send before the client has acknowledged that it was read. With HTTP/2's default of 64 KiB a
/// list of a thousand pods would have to wait for its reader repeatedly.
const WINDOW: u32 = 4 << 20;

/// Connects to a CRI endpoint on a Unix socket, which may be that of any engine.
///
/// `socket` is a path, with or without the prefix `unix://`.
///
/// # Errors
/// When no server listens on the socket, or it does not use HTTP/2. The cause is the error's source (`ENOENT`,
/// `ECONNREFUSED`, …).
pub async fn connect(socket: impl AsRef<Path>) -> Result<Channel, Error> {
    let path = plain(socket.as_ref());
    // The authority of the URI is not used, but HTTP/2 requires one.
    Endpoint::from_static("http://localhost")
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .http2_max_header_list_size(HEADERS_MAX)
        .connect_with_connector(tower::service_fn(move |_| {
            let path = path.clone();
            async move { UnixStream::connect(path).await.map(TokioIo::new) }
        }))
        .await
}

fn plain(socket: &Path) -> PathBuf {
    match socket.to_str().and_then(|text| text.strip_prefix("unix://")) {
        Some(path) => PathBuf::from(path),
        None => socket.to_path_buf(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scheme_of_a_path_is_stripped() {
        assert_eq!(plain(Path::new("unix:///run/a.sock")), PathBuf::from("/run/a.sock"));
        assert_eq!(plain(Path::new("/run/a.sock")), PathBuf::from("/run/a.sock"));
    }
}
