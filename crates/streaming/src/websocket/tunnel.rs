//! A byte stream within a WebSocket connection, carried in the content of its messages.

use std::{
    future::Future,
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf, SimplexStream, WriteHalf, simplex},
    sync::mpsc,
};

use super::{Codec, connect};
use crate::link::Lifetime;

/// Capacity of the buffer between the inner and the outer connection in bytes.
const BUFFER: usize = 64 * 1024;

/// Reads the content of the messages.
pub(crate) struct Messages {
    queue: mpsc::Receiver<Bytes>,
    piece: Bytes,
}

impl AsyncRead for Messages {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.piece.is_empty() {
            match ready!(this.queue.poll_recv(context)) {
                Some(piece) => this.piece = piece,
                None => return Poll::Ready(Ok(())),
            }
        }
        let length = this.piece.len().min(buffer.remaining());
        buffer.put_slice(&this.piece.split_to(length));
        Poll::Ready(Ok(()))
    }
}

/// Sets a tunnel up. Returns the two directions of the inner connection, and the future that drives the outer
/// connection and completes when it ends. When the inner writer is shut down, the outer connection is closed.
pub(crate) fn tunnel(
    reader: impl AsyncRead + Send + Unpin,
    writer: impl AsyncWrite + Send + Unpin + 'static,
    lifetime: Lifetime,
) -> (Messages, WriteHalf<SimplexStream>, impl Future<Output = ()> + Send) {
    let (connection, mut inboxes, run) = connect(reader, writer, Codec::Raw, &[0], lifetime);
    let queue = inboxes.remove(0);
    let (mut from_inner, inner) = simplex(BUFFER);
    let outer = async move {
        let mut outlet = connection.outlet(0);
        let send = async {
            let mut buffer = vec![0; BUFFER];
            while let Ok(length @ 1..) = from_inner.read(&mut buffer).await {
                if outlet.send(&buffer[..length]).await.is_err() {
                    return;
                }
            }
            connection.close().await;
            // Now the client has to close the connection.
            std::future::pending().await
        };
        tokio::select! {
            () = run => {}
            () = send => {}
        }
    };
    (Messages { queue, piece: Bytes::new() }, inner, outer)
}
