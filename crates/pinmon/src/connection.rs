//! Connection to the daemon. There is one at a time, and the monitor never waits for it.
//!
//! Frames that the socket does not take are queued. A daemon that reads nothing while [`QUEUE_MAX`] frames are queued
//! is disconnected, and requests the `Inventory` when it connects again. Entries of an `Inventory` are queued by name,
//! so that their descriptors are duplicated only when the frame is sent.

use std::{
    collections::{BTreeMap, VecDeque},
    io,
};

use monitor_api::{Attachments, CodecError, Connection, Envelope, Event, Failure, Frame, Reply};

use serde::{Deserialize, Serialize};

use crate::{epoll::Epoll, monitor::Monitor, token::Token};

/// Maximum number of queued frames.
const QUEUE_MAX: usize = 64 * 1024;

/// Identifies a request: the number of its connection and its sequence number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RequestId {
    pub(crate) link: u64,
    pub(crate) seq: u64,
}

/// A queued frame.
enum Outgoing {
    Ready(Frame),
    /// An entry of an inventory: a container by its serial number, or a key.
    Holding {
        seq: u64,
        serial: u64,
    },
    Key {
        seq: u64,
        key: String,
    },
}

/// A connection to the daemon.
pub(crate) struct Link {
    pub(crate) number: u64,
    pub(crate) connection: Connection,
    /// Whether `Hello` was received.
    pub(crate) greeted: bool,
    /// Mounts of containers that are not created yet, by container id.
    pub(crate) mounts: BTreeMap<String, Attachments>,
    queue: VecDeque<Outgoing>,
    /// Number of frames at the head of the queue that were queued in an earlier iteration. The files whose duplicates
    /// they hold may be closed everywhere else by now.
    queued_earlier: usize,
    /// Whether epoll reports room to write. It does only while frames are queued, because every frame that the daemon
    /// reads makes room.
    awaits_room: bool,
}

impl Link {
    /// Wraps a new connection, or one taken over from the previous program of this process.
    pub(crate) fn new(number: u64, connection: Connection, greeted: bool) -> Self {
        let (mounts, queue) = (BTreeMap::new(), VecDeque::new());
        Self { number, connection, greeted, mounts, queue, queued_earlier: 0, awaits_room: false }
    }

    /// Takes the next frame, and returns whether it was queued in an earlier iteration.
    fn next(&mut self) -> Option<(Outgoing, bool)> {
        let was_queued = self.queued_earlier > 0;
        self.queued_earlier = self.queued_earlier.saturating_sub(1);
        self.queue.pop_front().map(|next| (next, was_queued))
    }

    /// Adds the connection to epoll.
    pub(crate) fn watch(&self, epoll: &Epoll) -> io::Result<()> {
        epoll.rewatch(&self.connection, Token::Link, self.awaits_room)
    }

    /// Whether all frames were sent.
    pub(crate) fn is_flushed(&self) -> bool {
        self.queue.is_empty()
    }
}

impl Monitor {
    /// Sends the reply to a request, if its connection is still open.
    pub(crate) fn reply(&mut self, request_id: RequestId, body: Result<(Reply, Attachments), Failure>) {
        let (body, attachments) = match body {
            Ok((reply, attachments)) => (Ok(reply), attachments),
            Err(failure) => (Err(failure), Attachments::new()),
        };
        let envelope = Envelope::Reply { seq: request_id.seq, body, roles: Vec::new() };
        self.enqueue_frame(Some(request_id.link), envelope, attachments);
    }

    /// Sends an event if a daemon is connected. A daemon that connects later learns of it from the `Inventory`.
    pub(crate) fn notify_daemon(&mut self, event: Event) {
        if self.link.as_ref().is_some_and(|link| link.greeted) {
            self.enqueue_frame(None, Envelope::Event(event), Attachments::new());
        }
    }

    /// Queues one `Holding` per object, then `Done`.
    pub(crate) fn send_inventory(&mut self, request_id: RequestId) {
        let serials: Vec<u64> = self.containers.keys().copied().collect();
        for serial in serials {
            self.enqueue(Some(request_id.link), Outgoing::Holding { seq: request_id.seq, serial });
        }
        let keys: Vec<String> = self.keyed_descriptors.keys().cloned().collect();
        for key in keys {
            self.enqueue(Some(request_id.link), Outgoing::Key { seq: request_id.seq, key });
        }
        self.reply(request_id, Ok((Reply::Done, Attachments::new())));
    }

    fn enqueue_frame(&mut self, link: Option<u64>, envelope: Envelope, attachments: Attachments) {
        match Frame::new(envelope, attachments) {
            Ok(frame) => self.enqueue(link, Outgoing::Ready(frame)),
            Err(error) => {
                eprintln!("pinmon: encode a frame for the daemon: {error}; connection closed");
                self.disconnect();
            }
        }
    }

    fn enqueue(&mut self, link: Option<u64>, frame: Outgoing) {
        let Some(current) = &mut self.link else { return };
        if link.is_some_and(|number| number != current.number) {
            return;
        }
        current.queue.push_back(frame);
        if current.queue.len() > QUEUE_MAX {
            eprintln!("pinmon: the daemon reads nothing while {QUEUE_MAX} frames are queued; connection closed");
            return self.disconnect();
        }
        self.flush();
    }

    /// Sends queued frames until the socket has no more room.
    pub(crate) fn flush(&mut self) {
        self.send_waiting();
        let Some(link) = &mut self.link else { return };
        if link.awaits_room == link.is_flushed() {
            link.awaits_room = !link.is_flushed();
            self.watch_link();
        }
    }

    fn send_waiting(&mut self) {
        while let Some((next, was_queued)) = self.link.as_mut().and_then(Link::next) {
            // An inventory entry is encoded when it is sent. Its descriptors are duplicates: the record keeps the originals.
            let (entry, frame) = match next {
                Outgoing::Ready(frame) => (None, Ok(frame)),
                Outgoing::Holding { seq, serial } => match self.holding_frame(seq, serial) {
                    Some(frame) => (Some(Outgoing::Holding { seq, serial }), frame),
                    None => continue,
                },
                Outgoing::Key { seq, key } => match self.key_frame(seq, &key) {
                    Some(frame) => (Some(Outgoing::Key { seq, key }), frame),
                    None => continue,
                },
            };
            let Some(link) = &mut self.link else { return };
            let error = match frame.map(|frame| (link.connection.send_frame(&frame), frame)) {
                Ok((Ok(()), frame)) => {
                    if was_queued && entry.is_none() {
                        self.terminals.release(frame.into_attachments());
                    }
                    continue;
                }
                Ok((Err(CodecError::WouldBlock), frame)) => {
                    link.queue.push_front(entry.unwrap_or(Outgoing::Ready(frame)));
                    link.queued_earlier = link.queue.len();
                    return;
                }
                Ok((Err(error), frame)) => {
                    if entry.is_none() {
                        self.terminals.release(frame.into_attachments());
                    }
                    error
                }
                Err(error) => error,
            };
            if !matches!(error, CodecError::Closed) {
                eprintln!("pinmon: send to the daemon: {error}; connection closed");
            }
            return self.disconnect();
        }
    }

    /// Accepts a connection of a daemon, and drops the previous one.
    pub(crate) fn accept(&mut self) {
        loop {
            match monitor_api::accept(&self.listener) {
                Ok(None) => return,
                Ok(Some(connection)) => self.connected(connection),
                Err(error) => {
                    eprintln!("pinmon: {error}");
                    return;
                }
            }
        }
    }

    fn connected(&mut self, connection: Connection) {
        self.disconnect();
        self.links += 1;
        self.link = Some(Link::new(self.links, connection, false));
        self.watch_link();
    }

    /// Drops the connection. Execs are killed, because no process is left that owns their pipes and deadlines.
    pub(crate) fn disconnect(&mut self) {
        if let Some(link) = self.link.take() {
            self.epoll.forget(&link.connection);
            self.unused_mounts.add(link.mounts.into_values().flatten().map(|(_, mount)| mount));
            for frame in link.queue {
                if let Outgoing::Ready(frame) = frame {
                    self.terminals.release(frame.into_attachments());
                }
            }
            self.kill_execs();
        }
    }

    /// Reads requests after the connection became readable or writable.
    pub(crate) fn link_ready(&mut self) {
        self.flush();
        while let Some(link) = &self.link {
            // The next program reads the remaining requests.
            if self.upgrade.is_some() {
                return;
            }
            let number = link.number;
            match link.connection.receive() {
                Ok((Envelope::Request { seq, body, .. }, attachments)) => {
                    self.handle(RequestId { link: number, seq }, *body, attachments);
                }
                Ok(_) => {
                    eprintln!("pinmon: the daemon sent a frame that is not a request; connection closed");
                    return self.disconnect();
                }
                Err(CodecError::WouldBlock) => return,
                Err(CodecError::Closed) => return self.disconnect(),
                // The request has no number that could be answered, and its sender must not wait forever.
                Err(error) => {
                    eprintln!("pinmon: receive from the daemon: {error}; connection closed");
                    return self.disconnect();
                }
            }
        }
    }
}
