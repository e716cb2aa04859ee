//! Connection to the daemon. There is one at a time, and the monitor never waits for it.
//!
//! Frames that the socket does not take are queued. A daemon that reads nothing while [`QUEUE_MAX`] frames are queued
//! is disconnected, and requests the `Inventory` when it connects again. Entries of an `Inventory` are queued by name,
//! so that their descriptors are duplicated only when the frame is sent: [`Link::flush`] returns the name, and
//! [`Link::send_entry`] takes the contents.

mod inventory;
mod peer;

use std::io;

use monitor_api::{
    Attachments, CodecError, Connection, Envelope, Event, Failure, Frame, MAJOR, MINOR, Reply, Request, Welcome,
};
use serde::{Deserialize, Serialize};

pub(crate) use inventory::{Entry, EntryContents};
pub(crate) use peer::Peer;

use crate::{closing::CloseQueue, event::Epoll};
use peer::Outgoing;

/// Maximum number of queued frames.
const QUEUE_MAX: usize = 64 * 1024;

/// Identifies a request: the number of its connection and its sequence number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RequestId {
    pub(crate) link: u64,
    pub(crate) seq: u64,
}

/// Answer to a request.
pub(crate) type Answer = Result<(Reply, Attachments), Failure>;

/// The connection to the daemon, if there is one.
pub(crate) struct Link {
    pub(crate) peer: Option<Peer>,
    /// Number of connections accepted so far.
    pub(crate) accepted: u64,
    /// Closes the terminals and pipes of frames that were not sent.
    close_queue: CloseQueue,
    /// Whether a connection was closed since the last [`Link::take_lost`].
    is_lost: bool,
}

impl Link {
    /// Creates a link after this number of connections, with the last of them if it is open.
    pub(crate) fn new(accepted: u64, peer: Option<Peer>, close_queue: CloseQueue) -> Self {
        Self { peer, accepted, close_queue, is_lost: false }
    }

    /// Replaces the connection, which must be closed, with a new one.
    pub(crate) fn connect(&mut self, connection: Connection) {
        self.accepted += 1;
        self.peer = Some(Peer::new(self.accepted, connection, false));
    }

    /// Closes the connection.
    pub(crate) fn disconnect(&mut self, epoll: &Epoll) {
        let Some(peer) = self.peer.take() else { return };
        self.is_lost = true;
        epoll.forget(&peer.connection);
        peer.into_unsent_frames().for_each(|frame| self.close_queue.release(frame.into_attachments()));
    }

    /// Returns whether a connection was closed since the last call.
    pub(crate) fn take_lost(&mut self) -> bool {
        std::mem::take(&mut self.is_lost)
    }

    /// Whether the daemon has sent `Hello`.
    pub(crate) fn is_greeted(&self) -> bool {
        self.peer.as_ref().is_some_and(|peer| peer.greeted)
    }

    /// Whether all frames were sent.
    pub(crate) fn is_flushed(&self) -> bool {
        self.peer.as_ref().is_none_or(Peer::is_flushed)
    }

    /// Whether [`Link::flush`] returned an entry that was not sent yet.
    pub(crate) fn awaits_entry(&self) -> bool {
        self.peer.as_ref().is_some_and(|peer| peer.awaits_entry)
    }

    /// Adds the connection to epoll.
    pub(crate) fn try_watch(&self, epoll: &Epoll) -> io::Result<()> {
        self.peer.as_ref().map_or(Ok(()), |peer| peer.watch(epoll))
    }

    /// Receives the next request. Closes the connection if it is broken.
    pub(crate) fn receive(&mut self, epoll: &Epoll) -> Option<(RequestId, Request, Attachments)> {
        let peer = self.peer.as_ref()?;
        match peer.connection.receive() {
            Ok((Envelope::Request { seq, body, .. }, attachments)) => {
                return Some((RequestId { link: peer.number, seq }, *body, attachments));
            }
            Ok(_) => eprintln!("pinmon: the daemon sent a frame that is not a request; connection closed"),
            Err(CodecError::WouldBlock) => return None,
            Err(CodecError::Closed) => {}
            // The request has no number that could be answered, and its sender must not wait forever.
            Err(error) => eprintln!("pinmon: receive from the daemon: {error}; connection closed"),
        }
        self.disconnect(epoll);
        None
    }

    /// Queues the reply to a request, if its connection is still open.
    pub(crate) fn reply(&mut self, request_id: RequestId, answer: Answer, epoll: &Epoll) {
        let (body, attachments) = match answer {
            Ok((reply, attachments)) => (Ok(reply), attachments),
            Err(failure) => (Err(failure), Attachments::new()),
        };
        let envelope = Envelope::Reply { seq: request_id.seq, body, roles: Vec::new() };
        self.enqueue_frame(Some(request_id.link), envelope, attachments, epoll);
    }

    /// Queues an event if a daemon is connected. A daemon that connects later learns of it from the `Inventory`.
    pub(crate) fn notify(&mut self, event: Event, epoll: &Epoll) {
        if self.is_greeted() {
            self.enqueue_frame(None, Envelope::Event(event), Attachments::new(), epoll);
        }
    }

    /// Queues an entry of the inventory that this request wants.
    pub(crate) fn list(&mut self, request_id: RequestId, entry: Entry, epoll: &Epoll) {
        self.enqueue(Some(request_id.link), Outgoing::Entry { seq: request_id.seq, entry }, epoll);
    }

    fn enqueue_frame(&mut self, link: Option<u64>, envelope: Envelope, attachments: Attachments, epoll: &Epoll) {
        match Frame::new(envelope, attachments) {
            Ok(frame) => self.enqueue(link, Outgoing::Ready(frame), epoll),
            Err(error) => {
                eprintln!("pinmon: encode a frame for the daemon: {error}; connection closed");
                self.disconnect(epoll);
            }
        }
    }

    fn enqueue(&mut self, link: Option<u64>, frame: Outgoing, epoll: &Epoll) {
        let is_current = |peer: &&mut Peer| link.is_none_or(|number| number == peer.number);
        let Some(peer) = self.peer.as_mut().filter(is_current) else { return };
        if peer.enqueue(frame) > QUEUE_MAX {
            eprintln!("pinmon: the daemon reads nothing while {QUEUE_MAX} frames are queued; connection closed");
            self.disconnect(epoll);
        }
    }

    /// Sends queued frames until the socket has no more room. Returns the entry of an inventory that must be sent next,
    /// by [`Link::send_entry`].
    pub(crate) fn flush(&mut self, epoll: &Epoll) -> Option<Entry> {
        loop {
            let peer = self.peer.as_mut()?;
            if let Some(Outgoing::Entry { entry, .. }) = peer.first() {
                let entry = entry.clone();
                peer.awaits_entry = true;
                return Some(entry);
            }
            let Some((Outgoing::Ready(frame), was_queued)) = peer.next() else { return None };
            match peer.connection.send_frame(&frame) {
                Ok(()) if was_queued => self.close_queue.release(frame.into_attachments()),
                Ok(()) => {}
                Err(CodecError::WouldBlock) => {
                    peer.put_back(Outgoing::Ready(frame));
                    return None;
                }
                Err(error) => {
                    self.close_queue.release(frame.into_attachments());
                    self.fail(&error, epoll);
                }
            }
        }
    }

    /// Sends the entry that [`Link::flush`] returned. Returns `false` if the socket has no room for it. `None`: the
    /// object was removed, or the daemon must not know it yet.
    pub(crate) fn send_entry(&mut self, contents: Option<EntryContents<'_>>, epoll: &Epoll) -> bool {
        let Some(peer) = self.peer.as_mut() else { return true };
        peer.awaits_entry = false;
        let Some((Outgoing::Entry { seq, entry }, _)) = peer.next() else { return true };
        let Some(contents) = contents else { return true };
        // Its descriptors are duplicates: the monitor keeps the originals.
        match contents.encode(seq).and_then(|frame| peer.connection.send_frame(&frame)) {
            Ok(()) => {}
            Err(CodecError::WouldBlock) => {
                peer.put_back(Outgoing::Entry { seq, entry });
                return false;
            }
            Err(error) => self.fail(&error, epoll),
        }
        true
    }

    fn fail(&mut self, error: &CodecError, epoll: &Epoll) {
        if !matches!(error, CodecError::Closed) {
            eprintln!("pinmon: send to the daemon: {error}; connection closed");
        }
        self.disconnect(epoll);
    }
}

/// Describes this monitor to the daemon.
pub(crate) fn welcome() -> Welcome {
    let pid = rustix::process::getpid().as_raw_nonzero().get().unsigned_abs();
    Welcome { major: MAJOR, minor: MINOR, pid, version: env!("CARGO_PKG_VERSION").to_owned() }
}

#[cfg(test)]
mod tests;
