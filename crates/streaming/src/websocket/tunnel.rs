//! A connection within a WebSocket connection: its bytes are the messages.

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
use crate::link::Standing;

/// So much waits between the inner connection and the outer.
const BETWEEN: usize = 64 * 1024;

/// Reads what comes in messages.
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

/// The inner connection's ends, and what must be run for anything to happen; that ends with the outer connection. When
/// the inner writer is shut down, the client is told that nothing follows.
pub(crate) fn tunnel(
    reader: impl AsyncRead + Send + Unpin,
    writer: impl AsyncWrite + Send + Unpin + 'static,
    standing: Standing,
) -> (Messages, WriteHalf<SimplexStream>, impl Future<Output = ()> + Send) {
    let (connection, mut inboxes, run) = connect(reader, writer, Codec::Raw, &[0], standing);
    let queue = inboxes.remove(0).into_queue();
    let (mut from_inner, inner) = simplex(BETWEEN);
    let outer = async move {
        let mut outlet = connection.outlet(0);
        let send = async {
            let mut buffer = vec![0; BETWEEN];
            while let Ok(length @ 1..) = from_inner.read(&mut buffer).await {
                if outlet.send(&buffer[..length]).await.is_err() {
                    return;
                }
            }
            connection.say_goodbye().await;
            // The client's turn.
            std::future::pending().await
        };
        tokio::select! {
            () = run => {}
            () = send => {}
        }
    };
    (Messages { queue, piece: Bytes::new() }, inner, outer)
}
