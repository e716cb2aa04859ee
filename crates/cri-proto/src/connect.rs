use std::path::{Path, PathBuf};

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Error};

/// Longest message that a client should accept, bytes: lists of thousands of pods with their labels outgrow gRPC's
/// default of 4 MiB. Kubelet and crictl use the same figure.
pub const MESSAGE_MAX: usize = 16 * 1024 * 1024;

/// What a server may send before it hears that it was read: with HTTP/2's default of 64 KiB a list of a thousand pods
/// waits for its reader again and again.
const WINDOW: u32 = 4 << 20;

/// Connects to a CRI endpoint on a Unix socket (any engine's, not only ours).
///
/// `socket` is a path, with or without `unix://` before it.
///
/// # Errors
/// When nothing listens there, or no HTTP/2 is spoken; the cause is the error's source (`ENOENT`, `ECONNREFUSED`, …).
pub async fn connect(socket: impl AsRef<Path>) -> Result<Channel, Error> {
    let path = plain(socket.as_ref());
    // The authority of the URI is unused, but HTTP/2 wants one.
    Endpoint::from_static("http://localhost")
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
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
    fn a_scheme_before_the_path_is_dropped() {
        assert_eq!(plain(Path::new("unix:///run/a.sock")), PathBuf::from("/run/a.sock"));
        assert_eq!(plain(Path::new("/run/a.sock")), PathBuf::from("/run/a.sock"));
    }
}
