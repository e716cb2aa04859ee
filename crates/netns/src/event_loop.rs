//! One event loop over the sockets of many namespaces: epoll(7), which knows no namespaces.

mod members;

use std::{fmt, time::Duration};

use rustix::{
    event::{Timespec, epoll},
    fd::{AsFd, BorrowedFd, OwnedFd},
    io::Errno,
};

use crate::{Error, NsId};
use members::Members;

/// Most events that one [`EventLoop::wait`] returns. Many, so that those of one namespace are together: what the kernel
/// has of a namespace is then in the processor's caches for all of them but the first.
const EVENTS_MAX: usize = 4096;

/// Sockets of many namespaces that one thread waits for. `S` is a socket together with what the program knows of it.
///
/// Waiting and handling an event need no switch. All sockets of a namespace can be closed at once
/// ([`EventLoop::remove_namespace`]).
///
/// For several threads, use a loop for each, and distribute the namespaces among them. A loop is itself a source that
/// another one can wait for: it can be read from while a socket of it is ready.
pub struct EventLoop<S> {
    epoll: OwnedFd,
    slots: Vec<Slot<S>>,
    free: Vec<u32>,
    members: Members,
    buffer: Vec<epoll::Event>,
}

impl<S> fmt::Debug for EventLoop<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sockets = self.slots.len() - self.free.len();
        f.debug_struct("EventLoop").field("sockets", &sockets).finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Slot<S> {
    /// Counts the sources that had this slot, so that an event of an earlier one is not taken for one of the present.
    generation: u32,
    source: Option<Source<S>>,
}

#[derive(Debug)]
struct Source<S> {
    socket: S,
    namespace: NsId,
    /// Number of its namespace in this loop, and position among its sockets.
    group: u32,
    position: usize,
}

/// Names a socket of an [`EventLoop`]. A key of a socket that was removed matches nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    index: u32,
    generation: u32,
}

impl Key {
    fn data(self) -> epoll::EventData {
        epoll::EventData::new_u64(u64::from(self.generation) << 32 | u64::from(self.index))
    }

    #[expect(clippy::cast_possible_truncation, reason = "two halves of a number")]
    fn from_data(data: epoll::EventData) -> Self {
        Self { index: data.u64() as u32, generation: (data.u64() >> 32) as u32 }
    }
}

/// What a socket is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Until it can be read from.
    Read,
    /// Until it can be written to.
    Write,
    /// Until it can be read from or written to.
    ReadWrite,
}

impl From<Interest> for epoll::EventFlags {
    fn from(interest: Interest) -> Self {
        match interest {
            Interest::Read => Self::IN | Self::RDHUP,
            Interest::Write => Self::OUT,
            Interest::ReadWrite => Self::IN | Self::RDHUP | Self::OUT,
        }
    }
}

/// A socket that is ready.
#[derive(Clone, Copy, Debug)]
pub struct Ready {
    /// The socket.
    pub key: Key,
    /// It can be read from: there is data, a connection, the end of the peer's data, or an error.
    pub read: bool,
    /// It can be written to, or has an error.
    pub write: bool,
}

impl<S: AsFd> EventLoop<S> {
    /// Creates a loop without sockets.
    ///
    /// # Errors
    /// `EMFILE`.
    pub fn new() -> Result<Self, Error> {
        let epoll =
            epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|e| Error::kernel("create", "epoll instance", e))?;
        Ok(Self {
            epoll,
            slots: Vec::new(),
            free: Vec::new(),
            members: Members::default(),
            buffer: Vec::with_capacity(EVENTS_MAX),
        })
    }

    /// Adds a socket of a namespace. It should not block.
    ///
    /// # Errors
    /// `ENOSPC` at the limit of `/proc/sys/fs/epoll/max_user_watches`. The socket is closed then.
    pub fn add(&mut self, namespace: NsId, socket: S, interest: Interest) -> Result<Key, Error> {
        let index = match self.free.last() {
            Some(index) => *index,
            None => u32::try_from(self.slots.len())
                .map_err(|_| Error::kernel("add", "socket to the event loop", Errno::MFILE))?,
        };
        let generation = self.slots.get(index as usize).map_or(0, |slot| slot.generation);
        let key = Key { index, generation };
        epoll::add(&self.epoll, &socket, key.data(), interest.into())
            .map_err(|e| Error::kernel("add", "socket to the event loop", e))?;
        let (group, position) = self.members.join(namespace, index);
        let source = Some(Source { socket, namespace, group, position });
        if self.free.pop().is_some() {
            self.slots[index as usize].source = source;
        } else {
            self.slots.push(Slot { generation, source });
        }
        Ok(key)
    }

    /// Changes what a socket is waited for; does nothing if it was removed.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn set_interest(&mut self, key: Key, interest: Interest) -> Result<(), Error> {
        let Some(source) = self.source(key) else { return Ok(()) };
        epoll::modify(&self.epoll, &source.socket, key.data(), interest.into())
            .map_err(|e| Error::kernel("change", "socket of the event loop", e))
    }

    fn source(&self, key: Key) -> Option<&Source<S>> {
        let slot = self.slots.get(key.index as usize)?;
        if slot.generation == key.generation { slot.source.as_ref() } else { None }
    }

    /// Returns a socket and its namespace; `None` if it was removed.
    pub fn get_mut(&mut self, key: Key) -> Option<(NsId, &mut S)> {
        let slot = self.slots.get_mut(key.index as usize)?;
        let source = if slot.generation == key.generation { slot.source.as_mut() } else { None }?;
        Some((source.namespace, &mut source.socket))
    }

    /// Returns the sockets of a namespace, in no particular order.
    pub fn of_namespace(&self, namespace: NsId) -> impl Iterator<Item = (Key, &S)> {
        self.members.of(namespace).iter().filter_map(|index| {
            let slot = &self.slots[*index as usize];
            let key = Key { index: *index, generation: slot.generation };
            slot.source.as_ref().map(|source| (key, &source.socket))
        })
    }

    /// Returns the number of sockets.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Reports whether the loop has no sockets.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Removes a socket, and returns it; `None` if it was removed already. Events of it that [`EventLoop::wait`] returned
    /// before match nothing afterwards.
    pub fn remove(&mut self, key: Key) -> Option<S> {
        self.source(key)?;
        let source = self.take(key.index)?;
        let moved = self.members.leave(source.namespace, source.group, source.position);
        if let Some(moved) = moved.and_then(|moved| self.slots[moved as usize].source.as_mut()) {
            moved.position = source.position;
        }
        Some(source.socket)
    }

    /// Removes all sockets of a namespace and closes them, so that they do not keep it alive. Returns how many there were.
    pub fn remove_namespace(&mut self, namespace: NsId) -> usize {
        let indexes = self.members.dissolve(namespace);
        for index in &indexes {
            drop(self.take(*index));
        }
        indexes.len()
    }

    fn take(&mut self, index: u32) -> Option<Source<S>> {
        let slot = &mut self.slots[index as usize];
        let source = slot.source.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(index);
        // It fails only if the descriptor is not in the instance; a duplicate of it elsewhere would keep it there.
        let _ = epoll::delete(&self.epoll, &source.socket);
        Some(source)
    }

    /// Waits until sockets are ready, at most for `timeout` (`None`: without a limit), and puts them into `ready`, at most
    /// 4096, those of one namespace after those of another. Returns without any when the time is over or a signal
    /// interrupted it.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn wait(&mut self, ready: &mut Vec<Ready>, timeout: Option<Duration>) -> Result<(), Error> {
        ready.clear();
        self.buffer.clear();
        let timeout = timeout.map(timespec);
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut self.buffer), timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(Error::kernel("wait for", "sockets of the event loop", errno)),
        }
        self.members.begin();
        for event in &self.buffer {
            let key = Key::from_data(event.data);
            let slot = self.slots.get(key.index as usize).filter(|slot| slot.generation == key.generation);
            self.members.add_event(slot.and_then(|slot| slot.source.as_ref()).map(|source| source.group));
        }
        ready.extend(self.members.in_order().map(|number| Ready::from_event(self.buffer[number])));
        Ok(())
    }
}

impl Ready {
    fn from_event(event: epoll::Event) -> Self {
        let (flags, data) = (event.flags, event.data);
        let is_broken = flags.intersects(epoll::EventFlags::ERR | epoll::EventFlags::HUP);
        Self {
            key: Key::from_data(data),
            read: is_broken || flags.intersects(epoll::EventFlags::IN | epoll::EventFlags::RDHUP),
            write: is_broken || flags.contains(epoll::EventFlags::OUT),
        }
    }
}

impl<S> AsFd for EventLoop<S> {
    /// Returns a descriptor that is readable while a socket is ready.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

fn timespec(duration: Duration) -> Timespec {
    let seconds = i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
    Timespec { tv_sec: seconds, tv_nsec: duration.subsec_nanos().into() }
}

#[cfg(test)]
mod tests {
    use std::{io::Write, os::unix::net::UnixStream};

    use super::*;

    fn keys<S>(events: &mut EventLoop<S>) -> Vec<Key>
    where
        S: AsFd,
    {
        let mut ready = Vec::new();
        events.wait(&mut ready, Some(Duration::ZERO)).unwrap();
        ready.iter().map(|ready| ready.key).collect()
    }

    #[test]
    fn a_removed_key_matches_nothing() {
        let mut events = EventLoop::new().unwrap();
        let (mut writer, reader) = UnixStream::pair().unwrap();
        let first = events.add(NsId(1), reader, Interest::Read).unwrap();
        assert!(keys(&mut events).is_empty());
        writer.write_all(b"x").unwrap();
        assert_eq!(keys(&mut events), [first]);
        let reader = events.remove(first).unwrap();
        assert!(events.remove(first).is_none() && events.get_mut(first).is_none());
        let second = events.add(NsId(2), reader, Interest::Read).unwrap();
        assert_eq!((first.index, keys(&mut events)), (second.index, vec![second]));
        assert!(events.get_mut(first).is_none());
        assert_eq!(events.get_mut(second).unwrap().0, NsId(2));
    }

    #[test]
    fn sockets_of_one_namespace_are_returned_together() {
        let mut events = EventLoop::new().unwrap();
        let (mut keys, mut writers) = (Vec::new(), Vec::new());
        for number in 0..9 {
            let (mut writer, reader) = UnixStream::pair().unwrap();
            keys.push(events.add(NsId(number % 3), reader, Interest::Read).unwrap());
            writer.write_all(b"x").unwrap();
            writers.push(writer);
        }
        let mut ready = Vec::new();
        events.wait(&mut ready, None).unwrap();
        let order: Vec<Key> = ready.iter().map(|ready| ready.key).collect();
        assert_eq!(order, [0, 3, 6, 1, 4, 7, 2, 5, 8].map(|number: usize| keys[number]));
    }

    #[test]
    fn a_loop_can_wait_for_another() {
        let (mut outer, mut inner) = (EventLoop::new().unwrap(), EventLoop::new().unwrap());
        let (mut writer, reader) = UnixStream::pair().unwrap();
        let in_inner = inner.add(NsId(1), reader, Interest::Read).unwrap();
        let in_outer = outer.add(NsId(0), inner.as_fd().try_clone_to_owned().unwrap(), Interest::Read).unwrap();
        assert!(keys(&mut outer).is_empty());
        writer.write_all(b"x").unwrap();
        assert_eq!((keys(&mut outer), keys(&mut inner)), (vec![in_outer], vec![in_inner]));
        inner.remove_namespace(NsId(1));
        assert!(keys(&mut outer).is_empty());
    }

    #[test]
    fn all_sockets_of_a_namespace_are_removed_at_once() {
        let mut events = EventLoop::new().unwrap();
        let mut keys = Vec::new();
        for number in 0..30 {
            let (socket, _) = UnixStream::pair().unwrap();
            keys.push(events.add(NsId(number % 3), socket, Interest::Read).unwrap());
        }
        // Removals from the middle of the lists.
        for number in [3, 4, 9, 27] {
            events.remove(keys[number]).unwrap();
        }
        let mut of_one: Vec<Key> = events.of_namespace(NsId(1)).map(|(key, _)| key).collect();
        of_one.sort_by_key(|key| key.index);
        assert_eq!(of_one, [1, 7, 10, 13, 16, 19, 22, 25, 28].map(|number| keys[number]));
        assert_eq!(events.of_namespace(NsId(9)).count(), 0);
        assert_eq!((events.len(), events.remove_namespace(NsId(0))), (26, 7));
        assert_eq!(events.remove_namespace(NsId(0)), 0);
        assert_eq!((events.remove_namespace(NsId(1)), events.remove_namespace(NsId(2))), (9, 10));
        assert!(events.is_empty() && events.members.is_empty());
    }
}
