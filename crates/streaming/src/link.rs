//! The write half of a connection, shared by all senders, and the state of the connection.

use std::{
    io::IoSlice,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::OwnedFd,
};
use tokio::{
    io::{AsyncWrite, AsyncWriteExt},
    sync::Mutex,
};
use tokio_util::sync::CancellationToken;

/// How often a connection that is not read is checked for the client's disconnection.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// The connection, or the stream, is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Closed;

/// The lifetime of a connection.
pub(crate) struct Lifetime {
    /// Cancelled when the connection has ended or must end.
    pub(crate) closed: CancellationToken,
    /// The socket, to detect a disconnection while it is not read; `None` for a connection within another.
    pub(crate) socket: Option<OwnedFd>,
}

/// The write half of a connection.
pub(crate) struct Link {
    half: Mutex<Half>,
    closed: CancellationToken,
    socket: Option<OwnedFd>,
    began: Instant,
    /// Time of the last transfer in either direction, in milliseconds after `began`.
    active: AtomicU64,
}

struct Half {
    writer: Box<dyn AsyncWrite + Send + Unpin>,
    /// Whether a frame was started and not completed, so that no other may follow.
    incomplete: bool,
}

impl Link {
    pub(crate) fn new(writer: impl AsyncWrite + Send + Unpin + 'static, lifetime: Lifetime) -> Self {
        let half = Half { writer: Box::new(writer), incomplete: false };
        let Lifetime { closed, socket } = lifetime;
        Self { half: Mutex::new(half), closed, socket, began: Instant::now(), active: AtomicU64::new(0) }
    }

    /// Writes one frame; writers take turns in the order of their calls.
    pub(crate) async fn write(&self, head: &[u8], body: &[u8]) -> Result<(), Closed> {
        let mut half = self.half.lock().await;
        if half.incomplete || self.closed.is_cancelled() {
            return Err(Closed);
        }
        half.incomplete = true;
        if write_all(&mut *half.writer, head, body).await.is_err() {
            self.closed.cancel();
            return Err(Closed);
        }
        half.incomplete = false;
        self.touch();
        Ok(())
    }

    /// Shuts the write half down.
    pub(crate) async fn shutdown(&self) {
        // This fails if the client has disconnected.
        let _ = self.half.lock().await.writer.shutdown().await;
    }

    /// Records that data was transferred.
    pub(crate) fn touch(&self) {
        self.active.store(self.began.elapsed().as_millis() as u64, Ordering::Relaxed);
    }

    /// Returns the token that is cancelled when the connection has ended or must end.
    pub(crate) fn closed(&self) -> &CancellationToken {
        &self.closed
    }

    /// Resolves when the client has closed its socket. Needed while nothing is read, because otherwise the read detects
    /// it.
    pub(crate) async fn disconnected(&self) {
        let Some(socket) = &self.socket else { return std::future::pending().await };
        loop {
            tokio::time::sleep(POLL_INTERVAL).await;
            let mut polled = [PollFd::new(socket, PollFlags::RDHUP)];
            if poll(&mut polled, Some(&Timespec::default())).is_ok_and(|n| n > 0) {
                return;
            }
        }
    }

    /// Resolves when nothing has been transferred for the given time.
    pub(crate) async fn idle(&self, limit: Duration) {
        loop {
            let active = self.began + Duration::from_millis(self.active.load(Ordering::Relaxed));
            let remaining = limit.saturating_sub(active.elapsed());
            if remaining.is_zero() {
                return;
            }
            tokio::time::sleep(remaining).await;
        }
    }
}

async fn write_all(writer: &mut (dyn AsyncWrite + Send + Unpin), head: &[u8], body: &[u8]) -> std::io::Result<()> {
    let mut written = 0;
    while written < head.len() {
        let n = writer.write_vectored(&[IoSlice::new(&head[written..]), IoSlice::new(body)]).await?;
        if n == 0 {
            return Err(std::io::ErrorKind::WriteZero.into());
        }
        written += n;
    }
    writer.write_all(&body[written - head.len()..]).await?;
    writer.flush().await
}
