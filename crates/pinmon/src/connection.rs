//! The connection to the daemon: one at a time, never waited for.
//!
//! Frames that the socket does not take wait in a queue; a daemon that reads nothing while [`QUEUE_MAX`] frames wait is cut
//! off, and asks for the `Inventory` when it comes back. An `Inventory`'s entries wait as names, so that descriptors are
//! only duplicated when their frame is sent.

use std::{
    collections::{BTreeMap, VecDeque},
    io,
};

use monitor_api::{Attachments, CodecError, Connection, Envelope, Event, Failure, Frame, Reply};

use serde::{Deserialize, Serialize};

use crate::{epoll::Epoll, monitor::Monitor, token::Token};

/// Most frames that wait for the daemon to read.
const QUEUE_MAX: usize = 64 * 1024;

/// Whom a request came from, and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Asked {
    pub(crate) link: u64,
    pub(crate) seq: u64,
}

/// A frame that waits.
enum Outgoing {
    Ready(Frame),
    /// An entry of an inventory: a container by its serial, or a key.
    Holding {
        seq: u64,
        serial: u64,
    },
    Kept {
        seq: u64,
        key: String,
    },
}

/// See the head of this file.
pub(crate) struct Link {
    pub(crate) number: u64,
    pub(crate) connection: Connection,
    /// Whether `Hello` was said.
    pub(crate) greeted: bool,
    /// Of containers whose `Create` is to come, by their ids.
    pub(crate) mounts: BTreeMap<String, Attachments>,
    queue: VecDeque<Outgoing>,
    /// How many frames at the head of the queue were there before this turn of the loop: what they duplicate may be closed
    /// everywhere else by now.
    waited: usize,
    /// Room to write is reported. Only where something waits for it: every frame that the daemon takes is room.
    awaits_room: bool,
}

impl Link {
    /// Also one that another program of this process had.
    pub(crate) fn new(number: u64, connection: Connection, greeted: bool) -> Self {
        let (mounts, queue) = (BTreeMap::new(), VecDeque::new());
        Self { number, connection, greeted, mounts, queue, waited: 0, awaits_room: false }
    }

    /// Takes the next frame, and whether it waited.
    fn next(&mut self) -> Option<(Outgoing, bool)> {
        let waited = self.waited > 0;
        self.waited = self.waited.saturating_sub(1);
        self.queue.pop_front().map(|next| (next, waited))
    }

    /// Watches it.
    pub(crate) fn watch(&self, epoll: &Epoll) -> io::Result<()> {
        epoll.rewatch(&self.connection, Token::Link, self.awaits_room)
    }

    /// Whether the socket took all that was to be sent.
    pub(crate) fn is_flushed(&self) -> bool {
        self.queue.is_empty()
    }
}

impl Monitor {
    /// Answers a request, if whoever asked is still there.
    pub(crate) fn reply(&mut self, asked: Asked, body: Result<(Reply, Attachments), Failure>) {
        let (body, attachments) = match body {
            Ok((reply, attachments)) => (Ok(reply), attachments),
            Err(failure) => (Err(failure), Attachments::new()),
        };
        let envelope = Envelope::Reply { seq: asked.seq, body, roles: Vec::new() };
        self.enqueue_frame(Some(asked.link), envelope, attachments);
    }

    /// Tells the daemon, if there is one: otherwise it will learn it from the `Inventory`.
    pub(crate) fn tell(&mut self, event: Event) {
        if self.link.as_ref().is_some_and(|link| link.greeted) {
            self.enqueue_frame(None, Envelope::Event(event), Attachments::new());
        }
    }

    /// One `Holding` per object, then `Done`.
    pub(crate) fn send_inventory(&mut self, asked: Asked) {
        let serials: Vec<u64> = self.containers.keys().copied().collect();
        for serial in serials {
            self.enqueue(Some(asked.link), Outgoing::Holding { seq: asked.seq, serial });
        }
        let keys: Vec<String> = self.kept.keys().cloned().collect();
        for key in keys {
            self.enqueue(Some(asked.link), Outgoing::Kept { seq: asked.seq, key });
        }
        self.reply(asked, Ok((Reply::Done, Attachments::new())));
    }

    fn enqueue_frame(&mut self, link: Option<u64>, envelope: Envelope, attachments: Attachments) {
        match Frame::new(envelope, attachments) {
            Ok(frame) => self.enqueue(link, Outgoing::Ready(frame)),
            Err(error) => {
                eprintln!("pinmon: encode for the daemon: {error}: connection closed");
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
            eprintln!("pinmon: the daemon reads nothing while {QUEUE_MAX} frames wait: connection closed");
            return self.disconnect();
        }
        self.flush();
    }

    /// Sends what waits, as far as the socket takes it.
    pub(crate) fn flush(&mut self) {
        self.send_waiting();
        let Some(link) = &mut self.link else { return };
        if link.awaits_room == link.is_flushed() {
            link.awaits_room = !link.is_flushed();
            self.watch_link();
        }
    }

    fn send_waiting(&mut self) {
        while let Some((next, waited)) = self.link.as_mut().and_then(Link::next) {
            // What is listed is encoded when it is sent: its descriptors are copies, and the record has the originals.
            let (listed, frame) = match next {
                Outgoing::Ready(frame) => (None, Ok(frame)),
                Outgoing::Holding { seq, serial } => match self.holding_frame(seq, serial) {
                    Some(frame) => (Some(Outgoing::Holding { seq, serial }), frame),
                    None => continue,
                },
                Outgoing::Kept { seq, key } => match self.kept_frame(seq, &key) {
                    Some(frame) => (Some(Outgoing::Kept { seq, key }), frame),
                    None => continue,
                },
            };
            let Some(link) = &mut self.link else { return };
            let error = match frame.map(|frame| (link.connection.send_frame(&frame), frame)) {
                Ok((Ok(()), frame)) => {
                    if waited && listed.is_none() {
                        self.terminals.release(frame.into_attachments());
                    }
                    continue;
                }
                Ok((Err(CodecError::WouldBlock), frame)) => {
                    link.queue.push_front(listed.unwrap_or(Outgoing::Ready(frame)));
                    link.waited = link.queue.len();
                    return;
                }
                Ok((Err(error), frame)) => {
                    if listed.is_none() {
                        self.terminals.release(frame.into_attachments());
                    }
                    error
                }
                Err(error) => error,
            };
            if !matches!(error, CodecError::Closed) {
                eprintln!("pinmon: send to the daemon: {error}: connection closed");
            }
            return self.disconnect();
        }
    }

    /// The daemon is there again, or another one.
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

    /// Forgets the daemon. Commands it ran end: nobody is left to feed, bound or await them.
    pub(crate) fn disconnect(&mut self) {
        if let Some(link) = self.link.take() {
            self.epoll.forget(&link.connection);
            self.unused_mounts.add(link.mounts.into_values().flatten().map(|(_, mount)| mount));
            for frame in link.queue {
                if let Outgoing::Ready(frame) = frame {
                    self.terminals.release(frame.into_attachments());
                }
            }
            self.end_commands();
        }
    }

    /// Something came from the daemon, or it can take more.
    pub(crate) fn link_ready(&mut self) {
        self.flush();
        while let Some(link) = &self.link {
            // The next program reads on.
            if self.upgrade.is_some() {
                return;
            }
            let number = link.number;
            match link.connection.receive() {
                Ok((Envelope::Request { seq, body, .. }, attachments)) => {
                    self.handle(Asked { link: number, seq }, *body, attachments);
                }
                Ok(_) => {
                    eprintln!("pinmon: the daemon sent what is no request: connection closed");
                    return self.disconnect();
                }
                Err(CodecError::WouldBlock) => return,
                Err(CodecError::Closed) => return self.disconnect(),
                // Its sender waits for an answer that has no number: it must not wait for ever.
                Err(error) => {
                    eprintln!("pinmon: receive from the daemon: {error}: connection closed");
                    return self.disconnect();
                }
            }
        }
    }
}
