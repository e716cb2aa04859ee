//! What all components of the monitor use.

use std::io;

use monitor_api::{Attachments, Event, Reply};

use crate::{
    closing::Closers,
    event::{Epoll, POLL_INTERVAL, Timer, Timers, Token},
    link::{Answer, Entry, EntryContents, Link, RequestId},
};

/// The event loop's epoll instance, timers and serial numbers, the connection to the daemon, and the processes that
/// close terminals and pipes.
pub(crate) struct Services {
    pub(crate) epoll: Epoll,
    pub(crate) timers: Timers,
    pub(crate) link: Link,
    pub(crate) closers: Closers,
    /// The last serial number that was used.
    pub(crate) serials: u64,
}

impl Services {
    /// Returns a serial number that was never used before.
    pub(crate) fn next_serial(&mut self) -> u64 {
        self.serials += 1;
        self.serials
    }

    /// Polls an object by a timer if epoll refused to watch its descriptors.
    pub(crate) fn poll_unless_watched(&mut self, token: Token, watched: io::Result<()>) {
        if let Err(error) = watched {
            let (serial, milliseconds) = (token.serial(), POLL_INTERVAL.as_millis());
            eprintln!("pinmon: watch object {serial}: {error}; polled every {milliseconds} ms");
            self.timers.within(POLL_INTERVAL, Timer::Watch(token));
        }
    }

    /// Watches the connection to the daemon.
    pub(crate) fn watch_link(&mut self) {
        self.poll_unless_watched(Token::Link, self.link.try_watch(&self.epoll));
    }

    /// Sends the reply to a request, if its connection is still open.
    pub(crate) fn reply(&mut self, request_id: RequestId, answer: Answer) {
        self.link.reply(request_id, answer, &self.epoll);
        self.flush();
    }

    /// Answers a request that has no result.
    pub(crate) fn reply_done(&mut self, request_id: RequestId) {
        self.reply(request_id, Ok((Reply::Done, Attachments::new())));
    }

    /// Sends an event if a daemon is connected.
    pub(crate) fn notify(&mut self, event: Event) {
        self.link.notify(event, &self.epoll);
        self.flush();
    }

    /// Queues an entry of the inventory that this request wants.
    pub(crate) fn list(&mut self, request_id: RequestId, entry: Entry) {
        self.link.list(request_id, entry, &self.epoll);
    }

    /// Sends queued frames until the socket has no more room. Returns the entry of an inventory that must be sent next.
    pub(crate) fn flush(&mut self) -> Option<Entry> {
        let entry = self.link.flush(&self.epoll);
        if entry.is_none() {
            self.update_awaited_room();
        }
        entry
    }

    /// Sends the entry that [`Services::flush`] returned. Returns `false` if the socket has no room for it.
    pub(crate) fn send_entry(&mut self, contents: Option<EntryContents<'_>>) -> bool {
        let has_room = self.link.send_entry(contents, &self.epoll);
        if !has_room {
            self.update_awaited_room();
        }
        has_room
    }

    fn update_awaited_room(&mut self) {
        if self.link.peer.as_mut().is_some_and(|peer| peer.update_awaited_room()) {
            self.watch_link();
        }
    }
}
