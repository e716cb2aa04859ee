//! A single forwarded connection.

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{
    Reader, Runtime, Writer,
    channel::{Inbox, Outlet},
};

/// Size of the buffer for data to the client in bytes.
const CHUNK: usize = 64 * 1024;

/// The client's two streams of a connection.
pub(super) struct Pair {
    pub(super) inbox: Inbox,
    pub(super) data: Outlet,
    pub(super) error: Outlet,
}

/// Connects to the port and relays both directions, each until it ends. If the connection cannot be made, the reason is
/// sent on the error stream. A connection that breaks later just ends, as a direct connection would.
pub(super) async fn relay<R: Runtime>(runtime: &R, sandbox: &str, port: u16, mut pair: Pair) {
    match runtime.connect(sandbox, port).await {
        Ok((reader, writer)) => {
            tokio::join!(up(&mut pair.inbox, writer), down(reader, &mut pair.data));
            pair.error.finish().await;
        }
        Err(error) => {
            tracing::debug!(sandbox, port, "forward: {error}");
            let text = format!("error forwarding port {port} to pod {sandbox}: {error}");
            let _ = pair.error.send(text.as_bytes()).await;
            pair.error.finish().await;
            pair.data.reset().await;
        }
    }
}

async fn up(inbox: &mut Inbox, mut write: Writer) {
    while let Some(piece) = inbox.next().await {
        if write.write_all(&piece).await.is_err() {
            break;
        }
    }
    // This fails if the pod has closed its end already.
    let _ = write.shutdown().await;
    inbox.discard().await;
}

async fn down(mut read: Reader, outlet: &mut Outlet) {
    let mut buffer = vec![0; CHUNK];
    loop {
        let length = tokio::select! {
            length = read.read(&mut buffer) => length.unwrap_or(0),
            () = outlet.closed() => return,
        };
        if length == 0 {
            break;
        }
        if outlet.send(&buffer[..length]).await.is_err() {
            return;
        }
    }
    outlet.finish().await;
}
