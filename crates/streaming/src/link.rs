//! The write half of a connection, shared by all that send on it, and whether the connection still stands.

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

/// How often it is looked whether a client left that is not read.
const LOOK: Duration = Duration::from_millis(500);

/// The connection, or this stream of it, takes no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gone;

/// Whether a connection stands.
pub(crate) struct Standing {
    /// It has ended, or must.
    pub(crate) over: CancellationToken,
    /// Its socket, to see that the client left while it is not read; not for a connection within another.
    pub(crate) socket: Option<OwnedFd>,
}

/// See the module.
pub(crate) struct Link {
    half: Mutex<Half>,
    over: CancellationToken,
    socket: Option<OwnedFd>,
    began: Instant,
    /// Milliseconds after `began` at which something last went either way.
    active: AtomicU64,
}

struct Half {
    writer: Box<dyn AsyncWrite + Send + Unpin>,
    /// A frame was begun and not ended: nothing may follow it.
    broken: bool,
}

impl Link {
    pub(crate) fn new(writer: impl AsyncWrite + Send + Unpin + 'static, standing: Standing) -> Self {
        let half = Half { writer: Box::new(writer), broken: false };
        let Standing { over, socket } = standing;
        Self { half: Mutex::new(half), over, socket, began: Instant::now(), active: AtomicU64::new(0) }
    }

    /// Writes one frame, when it is its turn. What waits longest is first.
    pub(crate) async fn write(&self, head: &[u8], body: &[u8]) -> Result<(), Gone> {
        let mut half = self.half.lock().await;
        if half.broken || self.over.is_cancelled() {
            return Err(Gone);
        }
        half.broken = true;
        if write_all(&mut *half.writer, head, body).await.is_err() {
            self.over.cancel();
            return Err(Gone);
        }
        half.broken = false;
        self.touch();
        Ok(())
    }

    /// Says that nothing follows.
    pub(crate) async fn shutdown(&self) {
        // A client that left has no use for it.
        let _ = self.half.lock().await.writer.shutdown().await;
    }

    /// Something went over it.
    pub(crate) fn touch(&self) {
        self.active.store(self.began.elapsed().as_millis() as u64, Ordering::Relaxed);
    }

    /// The connection has ended, or must.
    pub(crate) fn over(&self) -> &CancellationToken {
        &self.over
    }

    /// Resolves when the client closed its socket. For while nothing is read, which is how it is seen else.
    pub(crate) async fn left(&self) {
        let Some(socket) = &self.socket else { return std::future::pending().await };
        loop {
            tokio::time::sleep(LOOK).await;
            let mut polled = [PollFd::new(socket, PollFlags::RDHUP)];
            if poll(&mut polled, Some(&Timespec::default())).is_ok_and(|n| n > 0) {
                return;
            }
        }
    }

    /// Resolves once nothing went over it for so long.
    pub(crate) async fn idle(&self, limit: Duration) {
        loop {
            let active = self.began + Duration::from_millis(self.active.load(Ordering::Relaxed));
            let left = limit.saturating_sub(active.elapsed());
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left).await;
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
