//! Follows the pins, opens the listeners of each tenant, and serves the metrics page.

use std::{
    collections::{HashMap, VecDeque},
    io,
    net::{SocketAddr, TcpListener},
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use netns::{Error, EventLoop, Interest, Namespace, NsId, Watch, WatchEvent};
use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    net::{SocketFlags, accept_with, sockopt},
};

use super::{
    mailbox::{Arrival, Change, Mailbox},
    metrics::{Counters, Registry},
    options::Options,
    page::Scrape,
};

/// Most events of the watch that are handled at a time, so that the arrival of many tenants does not delay the others.
const EVENTS: usize = 16;
/// Most descriptors of the control, most of which are connections to the metrics page.
const SCRAPES_MAX: usize = 16;
/// When a listener that could not be opened is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// Bytes that the kernel keeps of each direction of a connection, which it doubles for its own needs.
const SOCKET_BUFFER: usize = 64 * 1024;
const OWN: NsId = NsId(0);

/// A namespace, by at least one name.
struct Known {
    names: Vec<String>,
    shard: usize,
    /// None while its listeners could not be opened.
    counters: Option<Arc<Counters>>,
}

enum Source {
    Watch(OwnedFd),
    Metrics(TcpListener),
    Scrape(Scrape),
}

impl AsFd for Source {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Watch(descriptor) => descriptor.as_fd(),
            Self::Metrics(listener) => listener.as_fd(),
            Self::Scrape(scrape) => scrape.as_fd(),
        }
    }
}

/// Everything that is not done for one tenant.
pub(crate) struct Control {
    watch: Watch,
    events: EventLoop<Source>,
    pins: PathBuf,
    echo: SocketAddr,
    http: SocketAddr,
    known: HashMap<NsId, Known>,
    registry: Registry,
    mailboxes: Vec<Arc<Mailbox>>,
    /// Number of tenants of each shard.
    loads: Vec<usize>,
    /// The watch has more events.
    has_more: bool,
    /// Tenants whose listeners could not be opened, and when they are tried again.
    failed: VecDeque<NsId>,
    retry: Option<Instant>,
    /// Number of connections to the metrics page so far.
    scrapes: u64,
}

impl Control {
    pub(crate) fn new(options: &Options, mailboxes: Vec<Arc<Mailbox>>) -> Result<Self, Box<dyn std::error::Error>> {
        let (watch, mut events) = (Watch::directory(&options.pins)?, EventLoop::new()?);
        events.add(OWN, Source::Watch(watch.as_fd().try_clone_to_owned()?), Interest::Read)?;
        if let Some(address) = options.metrics {
            let listener = TcpListener::bind(address).map_err(|e| format!("listen on {address}: {e}"))?;
            listener.set_nonblocking(true)?;
            events.add(OWN, Source::Metrics(listener), Interest::Read)?;
        }
        Ok(Self {
            watch,
            events,
            pins: options.pins.clone(),
            echo: options.echo,
            http: options.http,
            known: HashMap::new(),
            registry: Registry::default(),
            loads: vec![0; mailboxes.len()],
            mailboxes,
            has_more: true,
            failed: VecDeque::new(),
            retry: None,
            scrapes: 0,
        })
    }

    /// Opens the listeners of the tenants that are present; returns how many there are.
    pub(crate) fn open_present(&mut self) -> Result<usize, Error> {
        while self.has_more {
            self.follow()?;
        }
        Ok(self.known.values().filter(|known| known.counters.is_some()).count())
    }

    /// Returns a descriptor that is readable when [`Control::turn`] has something to do.
    pub(crate) fn descriptor(&self) -> Result<OwnedFd, Error> {
        let duplicate = self.events.as_fd().try_clone_to_owned();
        duplicate.map_err(|cause| Error::Kernel { operation: "duplicate", object: "epoll instance".into(), cause })
    }

    /// Returns after which time `turn` must be called even if the descriptor is not readable.
    pub(crate) fn call_within(&self) -> Option<Duration> {
        let retry = self.retry.map(|retry| retry.saturating_duration_since(Instant::now()));
        let more = self.has_more.then_some(Duration::ZERO);
        [more, retry, self.watch.recheck_within()].into_iter().flatten().min()
    }

    /// Waits until there is something to do.
    pub(crate) fn wait(&mut self) -> Result<(), Error> {
        let timeout = self.call_within();
        self.events.wait(&mut Vec::new(), timeout)
    }

    /// Does a bounded part of what there is to do. Never waits.
    pub(crate) fn turn(&mut self) -> Result<(), Error> {
        let mut ready = Vec::new();
        self.events.wait(&mut ready, Some(Duration::ZERO))?;
        for ready in ready {
            match self.events.get_mut(ready.key) {
                Some((_, Source::Watch(_))) => self.has_more = true,
                Some((_, Source::Metrics(_))) => self.accept(ready.key)?,
                Some((_, Source::Scrape(scrape))) => match scrape.turn(&self.registry) {
                    Some(interest) => self.events.set_interest(ready.key, interest)?,
                    None => drop(self.events.remove(ready.key)),
                },
                None => {}
            }
        }
        if self.has_more || self.watch.recheck_within().is_some_and(|within| within.is_zero()) {
            self.follow()?;
        }
        if self.retry.is_some_and(|retry| retry <= Instant::now()) {
            self.retry_failed();
        }
        Ok(())
    }

    fn follow(&mut self) -> Result<(), Error> {
        for _ in 0..EVENTS {
            let event = match self.watch.try_next() {
                // Descriptors or memory are short for the moment. The watch looks again, and so do we.
                Err(Error::Kernel { cause, .. }) if cause.kind() != std::io::ErrorKind::NotFound => None,
                event => event?,
            };
            match event {
                Some(WatchEvent::Ready { name, id }) => self.arrive(name, id),
                Some(WatchEvent::Gone { name, id: Some(id) }) => self.leave(&name, id),
                Some(_) => {}
                None => {
                    self.has_more = false;
                    return Ok(());
                }
            }
        }
        self.has_more = true;
        Ok(())
    }

    fn arrive(&mut self, name: String, id: NsId) {
        if let Some(known) = self.known.get_mut(&id) {
            // Another name of the same namespace.
            known.names.push(name);
            return;
        }
        let shard = (0..self.loads.len()).min_by_key(|shard| self.loads[*shard]).unwrap_or(0);
        self.loads[shard] += 1;
        self.known.insert(id, Known { names: vec![name], shard, counters: None });
        self.open(id);
    }

    fn leave(&mut self, name: &str, id: NsId) {
        let Some(known) = self.known.get_mut(&id) else { return };
        known.names.retain(|it| it != name);
        if !known.names.is_empty() {
            return;
        }
        let Some(known) = self.known.remove(&id) else { return };
        self.loads[known.shard] -= 1;
        if let Some(counters) = known.counters {
            self.registry.remove(&counters);
            self.mailboxes[known.shard].put(Change::Remove(id));
        }
    }

    /// Opens the listeners of a tenant and hands them to its shard; tries it again later if that fails.
    fn open(&mut self, id: NsId) {
        // It may have been opened since it failed, by another name.
        let Some(known) = self.known.get_mut(&id).filter(|known| known.counters.is_none()) else { return };
        let Some(name) = known.names.first().cloned() else { return };
        match listeners(&self.pins.join(&name), id, self.echo, self.http) {
            Ok(Some((echo, http))) => {
                let counters = Arc::new(Counters { name, ..Counters::default() });
                self.registry.add(&counters);
                known.counters = Some(Arc::clone(&counters));
                self.mailboxes[known.shard].put(Change::Add(Arrival { id, echo, http, counters }));
            }
            // The name leads to another namespace by now: events follow.
            Ok(None) => {}
            Err(error) => {
                // Not for each attempt.
                if self.retry.is_none() {
                    eprintln!("server: tenant {name}: {error}; trying again each second");
                }
                self.failed.push_back(id);
                self.retry.get_or_insert_with(|| Instant::now() + RETRY);
            }
        }
    }

    /// Tries some of those that failed again, the others next time.
    fn retry_failed(&mut self) {
        self.retry = Some(Instant::now() + RETRY);
        for _ in 0..self.failed.len().min(EVENTS) {
            let id = self.failed.pop_front();
            // It may be gone in the meantime.
            id.into_iter().for_each(|id| self.open(id));
        }
        if self.failed.is_empty() {
            self.retry = None;
        }
    }

    fn accept(&mut self, listener: netns::Key) -> Result<(), Error> {
        let Some((_, Source::Metrics(socket))) = self.events.get_mut(listener) else { return Ok(()) };
        // It fails if the client is gone again.
        let Ok(accepted) = accept_with(socket, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) else { return Ok(()) };
        self.scrapes += 1;
        if self.events.len() >= SCRAPES_MAX {
            let scrapes = self.events.of_namespace(OWN).filter_map(|(key, source)| match source {
                Source::Scrape(scrape) => Some((scrape.number(), key)),
                _ => None,
            });
            // The oldest one: a client that never reads its page must not keep others from theirs.
            let oldest = scrapes.min_by_key(|(number, _)| *number);
            oldest.into_iter().for_each(|(_, key)| drop(self.events.remove(key)));
        }
        self.events.add(OWN, Source::Scrape(Scrape::new(accepted, self.scrapes)), Interest::Read)?;
        Ok(())
    }
}

/// Opens the listeners of a namespace in one visit; `None` if another one has the path by now.
fn listeners(
    path: &std::path::Path,
    id: NsId,
    echo: SocketAddr,
    http: SocketAddr,
) -> Result<Option<(TcpListener, TcpListener)>, Box<dyn std::error::Error>> {
    let namespace = Namespace::open(path)?;
    if namespace.id()? != id {
        return Ok(None);
    }
    let listen = move |address: SocketAddr| -> io::Result<TcpListener> {
        let listener = TcpListener::bind(address).map_err(|e| io::Error::new(e.kind(), format!("{address}: {e}")))?;
        listener.set_nonblocking(true)?;
        // Connections inherit these from their listener.
        sockopt::set_tcp_nodelay(&listener, true)?;
        sockopt::set_socket_recv_buffer_size(&listener, SOCKET_BUFFER)?;
        sockopt::set_socket_send_buffer_size(&listener, SOCKET_BUFFER)?;
        Ok(listener)
    };
    Ok(Some(namespace.enter(move || io::Result::Ok((listen(echo)?, listen(http)?)))??))
}
