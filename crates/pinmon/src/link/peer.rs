//! An open connection, and the frames that wait for room on it.

use std::{collections::VecDeque, io};

use monitor_api::{Connection, Frame};

use super::inventory::Entry;
use crate::event::{Epoll, Token};

/// A queued frame.
pub(super) enum Outgoing {
    Ready(Frame),
    /// An entry of the inventory that request `seq` wants.
    Entry {
        seq: u64,
        entry: Entry,
    },
}

/// An open connection to the daemon.
pub(crate) struct Peer {
    pub(crate) number: u64,
    pub(crate) connection: Connection,
    /// Whether `Hello` was received.
    pub(crate) greeted: bool,
    queue: VecDeque<Outgoing>,
    /// Number of frames at the head of the queue that were queued in an earlier iteration. The files whose duplicates
    /// they hold may be closed everywhere else by now.
    queued_earlier: usize,
    /// Whether the head of the queue is an entry whose contents the caller of [`super::Link::flush`] must provide.
    pub(super) awaits_entry: bool,
    /// Whether epoll reports room to write. It does only while frames are queued, because every frame that the daemon
    /// reads makes room.
    awaits_room: bool,
}

impl Peer {
    /// Wraps a new connection, or one taken over from the previous program of this process.
    pub(crate) fn new(number: u64, connection: Connection, greeted: bool) -> Self {
        let (awaits_entry, awaits_room) = (false, false);
        Self { number, connection, greeted, queue: VecDeque::new(), queued_earlier: 0, awaits_entry, awaits_room }
    }

    pub(super) fn is_flushed(&self) -> bool {
        self.queue.is_empty()
    }

    pub(super) fn watch(&self, epoll: &Epoll) -> io::Result<()> {
        epoll.rewatch(&self.connection, Token::Link, self.awaits_room)
    }

    /// Returns whether [`Peer::watch`] must be called because frames started or stopped waiting for room.
    pub(crate) fn update_awaited_room(&mut self) -> bool {
        let awaits_room = !self.is_flushed();
        std::mem::replace(&mut self.awaits_room, awaits_room) != awaits_room
    }

    /// Queues a frame, and returns the number of queued frames.
    pub(super) fn enqueue(&mut self, frame: Outgoing) -> usize {
        self.queue.push_back(frame);
        self.queue.len()
    }

    pub(super) fn first(&self) -> Option<&Outgoing> {
        self.queue.front()
    }

    /// Takes the next frame, and returns whether it was queued in an earlier iteration.
    pub(super) fn next(&mut self) -> Option<(Outgoing, bool)> {
        let was_queued = self.queued_earlier > 0;
        self.queued_earlier = self.queued_earlier.saturating_sub(1);
        self.queue.pop_front().map(|next| (next, was_queued))
    }

    /// Puts back a frame that the socket did not take.
    pub(super) fn put_back(&mut self, frame: Outgoing) {
        self.queue.push_front(frame);
        self.queued_earlier = self.queue.len();
    }

    /// Returns the encoded frames that were not sent.
    pub(super) fn into_unsent_frames(self) -> impl Iterator<Item = Frame> {
        self.queue.into_iter().filter_map(|frame| match frame {
            Outgoing::Ready(frame) => Some(frame),
            Outgoing::Entry { .. } => None,
        })
    }
}
