//! The state of a SPDY connection, shared by its receiver and its streams.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use tokio::{
    sync::{Notify, mpsc},
    time::sleep,
};
use tokio_util::sync::CancellationToken;

use super::{
    frame::{self, Reset},
    window::{self, Window},
};
use crate::link::{Closed, Link};

/// Interval of pings, which detect a peer that is gone.
const PING: Duration = Duration::from_secs(30);

/// Limits of a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Maximum number of concurrent streams; more are refused.
    pub(crate) streams: usize,
    /// How long a stream may block others before it is reset. `None`: streams belong together and may block each other.
    pub(crate) stall: Option<Duration>,
}

/// The shared state of a connection.
pub(crate) struct Connection {
    pub(super) link: Link,
    pub(super) limits: Limits,
    pub(super) replies: mpsc::Sender<Vec<u8>>,
    pub(super) state: Mutex<State>,
    /// Notified when a window was opened or a stream ended.
    pub(super) opened: Notify,
}

pub(super) struct State {
    pub(super) streams: HashMap<u32, Entry>,
    pub(super) last: u32,
    pub(super) window: Window,
    pub(super) initial: i64,
    /// Whether the peer uses windows.
    pub(super) flow_controlled: bool,
}

pub(super) struct Entry {
    /// `None` when the client sends no more.
    pub(super) inbox: Option<mpsc::Sender<Bytes>>,
    pub(super) reset: CancellationToken,
    pub(super) window: Window,
    pub(super) finished: bool,
    pub(super) released: bool,
}

impl Connection {
    pub(crate) fn link(&self) -> &Link {
        &self.link
    }

    /// Sends GOAWAY, and shuts the connection's write half down.
    pub(crate) async fn close(&self) {
        let last = self.state().last;
        // This fails if the client has disconnected.
        let _ = self.link.write(&frame::go_away(last, false), &[]).await;
        self.link.shutdown().await;
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a frame for writing. Returns false if the queue is full.
    pub(super) fn enqueue(&self, frame: Vec<u8>) -> bool {
        self.replies.try_send(frame).is_ok()
    }

    pub(super) async fn reset(&self, id: u32, status: Reset) {
        self.forget(id);
        let _ = self.replies.send(frame::rst_stream(id, status)).await;
    }

    /// Removes a stream.
    pub(super) fn forget(&self, id: u32) {
        if let Some(entry) = self.state().streams.remove(&id) {
            entry.reset.cancel();
        }
        self.opened.notify_waiters();
    }

    /// Records that we have sent all data of a stream.
    pub(super) fn finished(&self, id: u32) {
        let mut state = self.state();
        if let Some(entry) = state.streams.get_mut(&id) {
            entry.finished = true;
            if entry.inbox.is_none() {
                state.streams.remove(&id);
            }
        }
    }

    /// Records that the outlet of a stream was dropped.
    pub(super) fn released(&self, id: u32) {
        if let Some(entry) = self.state().streams.get_mut(&id) {
            entry.released = true;
        }
    }

    /// Waits until the windows are open, and returns how many of the requested bytes may be sent.
    pub(super) async fn take_window(&self, id: u32, requested: usize) -> Result<usize, Closed> {
        loop {
            let opened = self.opened.notified();
            tokio::pin!(opened);
            opened.as_mut().enable();
            {
                let mut state = self.state();
                let State { streams, window, flow_controlled, .. } = &mut *state;
                let Some(entry) = streams.get_mut(&id) else { return Err(Closed) };
                let taken = window::take(window, &mut entry.window, requested, *flow_controlled);
                if taken > 0 {
                    return Ok(taken);
                }
            }
            tokio::select! {
                () = opened => {}
                () = self.link.closed().cancelled() => return Err(Closed),
            }
        }
    }

    pub(super) async fn write_replies(&self, mut replies: mpsc::Receiver<Vec<u8>>) {
        while let Some(frame) = replies.recv().await {
            if self.link.write(&frame, &[]).await.is_err() {
                return;
            }
        }
    }

    /// Sends pings. Writing fails if the peer is gone, which is detected this way while the connection is not read.
    pub(super) async fn ping(&self) {
        for id in (2..u32::MAX).step_by(2) {
            sleep(PING).await;
            let _ = self.replies.send(frame::ping(id)).await;
        }
    }

    pub(super) fn end(&self) {
        self.link.closed().cancel();
        for (_, entry) in self.state().streams.drain() {
            entry.reset.cancel();
        }
        self.opened.notify_waiters();
    }
}
