//! Serves tenants: accepts, reads and writes, all in one loop.

use std::{
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use netns::{Error, EventLoop, Interest, Key, NsId, Ready};
use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{Mode, OFlags},
    io::Errno,
    net::{SocketFlags, accept_with},
};

use super::{
    content::Content,
    control::Control,
    echo::Echo,
    http::Http,
    mailbox::{Arrival, Change, Mailbox},
    tenant::Tenant,
};

/// Bytes of one read.
const READ_MAX: usize = 16 * 1024;
/// A tenant that has all its connections gets another one for one that was idle for so long.
const IDLE: Duration = Duration::from_secs(10);
/// The namespace of what belongs to no tenant; no namespace has this number.
const OWN: NsId = NsId(0);

/// What a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Read,
    Write,
    /// Nothing: its tenant has used its share of this turn.
    Again,
    Close,
}

#[derive(Clone, Copy, Debug)]
enum Service {
    Echo,
    Http,
}

#[derive(Debug)]
enum Protocol {
    Echo(Echo),
    Http(Box<Http>),
}

#[derive(Debug)]
enum Source {
    Mailbox(Arc<OwnedFd>),
    Control(OwnedFd),
    Listener { socket: OwnedFd, service: Service, tenant: Rc<Tenant> },
    Connection(Connection),
}

#[derive(Debug)]
struct Connection {
    socket: OwnedFd,
    protocol: Protocol,
    tenant: Rc<Tenant>,
    interest: Interest,
    active: Instant,
}

impl AsFd for Source {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Mailbox(wake) => wake.as_fd(),
            Self::Control(socket) | Self::Listener { socket, .. } => socket.as_fd(),
            Self::Connection(connection) => connection.socket.as_fd(),
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.tenant.counters.open.subtract(1);
    }
}

/// A loop over the sockets of many tenants.
pub(crate) struct Shard {
    events: EventLoop<Source>,
    mailbox: Arc<Mailbox>,
    content: Arc<Content>,
    connections_max: usize,
    /// Number of the turn: one wait, and what was ready then.
    turn: u64,
    now: Instant,
    /// Connections with something left to do, which no event reports.
    again: Vec<Key>,
    is_control_ready: bool,
    /// Given up for a moment to refuse a connection at the limit of descriptors.
    spare: Option<OwnedFd>,
    buffer: Box<[u8; READ_MAX]>,
}

impl Shard {
    pub(crate) fn new(mailbox: Arc<Mailbox>, content: Arc<Content>, connections_max: usize) -> Result<Self, Error> {
        let mut events = EventLoop::new()?;
        events.add(OWN, Source::Mailbox(mailbox.wake()), Interest::Read)?;
        Ok(Self {
            events,
            mailbox,
            content,
            connections_max,
            turn: 0,
            now: Instant::now(),
            again: Vec::new(),
            is_control_ready: false,
            spare: spare(),
            buffer: Box::new([0; READ_MAX]),
        })
    }

    /// Serves until an error that concerns all tenants; also does the work of the control, if there is one.
    pub(crate) fn run(&mut self, mut control: Option<&mut Control>) -> Result<(), Error> {
        if let Some(control) = &control {
            let source = Source::Control(control.descriptor()?);
            self.events.add(OWN, source, Interest::Read)?;
        }
        let mut ready = Vec::new();
        loop {
            let timeout = match self.again.is_empty() {
                true => control.as_ref().and_then(|control| control.call_within()),
                false => Some(Duration::ZERO),
            };
            self.events.wait(&mut ready, timeout)?;
            (self.turn, self.now) = (self.turn + 1, Instant::now());
            for key in std::mem::take(&mut self.again) {
                self.handle(key, true)?;
            }
            for Ready { key, .. } in &ready {
                self.handle(*key, false)?;
            }
            if let Some(control) = control.as_deref_mut()
                && (self.is_control_ready || control.call_within().is_some_and(|within| within.is_zero()))
            {
                self.is_control_ready = false;
                control.turn()?;
            }
        }
    }

    /// Handles an event, or what a connection has left to do, which no event reports.
    fn handle(&mut self, key: Key, is_left: bool) -> Result<(), Error> {
        let turn = self.turn;
        // A socket of this turn may have been closed in it.
        let Some((_, source)) = self.events.get_mut(key) else { return Ok(()) };
        match source {
            Source::Mailbox(_) => self.change_tenants(),
            Source::Control(_) => {
                self.is_control_ready = true;
                Ok(())
            }
            Source::Listener { tenant, service, .. } => {
                let (tenant, service) = (Rc::clone(tenant), *service);
                self.accept(key, &tenant, service)
            }
            Source::Connection(connection) => {
                if !connection.tenant.take(turn) {
                    // An event is reported again in the next turn.
                    self.again.extend(is_left.then_some(key));
                    return Ok(());
                }
                connection.active = self.now;
                let Connection { socket, protocol, tenant, .. } = connection;
                let next = match protocol {
                    Protocol::Echo(echo) => echo.turn(socket, tenant, &mut *self.buffer),
                    Protocol::Http(http) => http.turn(socket, tenant, &self.content, turn, &mut *self.buffer),
                };
                self.wait_for(key, next)
            }
        }
    }

    /// Has a connection wait for what it needs next.
    fn wait_for(&mut self, key: Key, next: Next) -> Result<(), Error> {
        let interest = match next {
            Next::Read => Interest::Read,
            Next::Write => Interest::Write,
            Next::Again => {
                self.again.push(key);
                return Ok(());
            }
            Next::Close => {
                self.events.remove(key);
                return Ok(());
            }
        };
        match self.events.get_mut(key) {
            Some((_, Source::Connection(connection))) if connection.interest != interest => {
                connection.interest = interest;
                self.events.set_interest(key, interest)
            }
            _ => Ok(()),
        }
    }

    /// Accepts what waits, as long as the tenant has its turn.
    fn accept(&mut self, listener: Key, tenant: &Rc<Tenant>, service: Service) -> Result<(), Error> {
        while tenant.take(self.turn) {
            let Some((id, Source::Listener { socket, .. })) = self.events.get_mut(listener) else { return Ok(()) };
            let accepted = match accept_with(socket, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                Ok(accepted) => accepted,
                Err(Errno::MFILE | Errno::NFILE) => {
                    self.refuse(listener, tenant);
                    continue;
                }
                // None is left, or one broke before it was accepted.
                Err(_) => return Ok(()),
            };
            if tenant.counters.open.get() >= self.connections_max as u64 && !self.close_idle(id) {
                tenant.counters.refused.add(1);
                continue;
            }
            tenant.counters.accepted.add(1);
            tenant.counters.open.add(1);
            let protocol = match service {
                Service::Echo => Protocol::Echo(Echo::default()),
                Service::Http => Protocol::Http(Box::default()),
            };
            let (tenant, interest, active) = (Rc::clone(tenant), Interest::Read, self.now);
            let connection = Connection { socket: accepted, protocol, tenant, interest, active };
            let counters = Arc::clone(&connection.tenant.counters);
            // It fails at a limit of the kernel; the connection is closed then.
            if self.events.add(id, Source::Connection(connection), interest).is_err() {
                counters.errors.add(1);
            }
        }
        Ok(())
    }

    /// Closes the connection that was idle for longest, if one was for long enough; returns whether one was.
    fn close_idle(&mut self, tenant: NsId) -> bool {
        let oldest = self
            .events
            .of_namespace(tenant)
            .filter_map(|(key, source)| match source {
                Source::Connection(connection) => Some((connection.active, key)),
                _ => None,
            })
            .min_by_key(|(active, _)| *active);
        match oldest {
            Some((active, key)) if self.now.saturating_duration_since(active) >= IDLE => {
                self.events.remove(key).is_some()
            }
            _ => false,
        }
    }

    /// Closes a connection that waits to be accepted, although descriptors are used up: otherwise it would be reported
    /// forever.
    fn refuse(&mut self, listener: Key, tenant: &Tenant) {
        tenant.counters.refused.add(1);
        drop(self.spare.take());
        if let Some((_, source)) = self.events.get_mut(listener) {
            drop(accept_with(source, SocketFlags::CLOEXEC));
        }
        self.spare = spare();
    }

    fn change_tenants(&mut self) -> Result<(), Error> {
        for change in self.mailbox.take() {
            match change {
                Change::Add(arrival) => {
                    // Its listeners are closed: clients are refused. The others are served.
                    if let Err(error) = self.add(arrival) {
                        eprintln!("server: add a tenant: {error}");
                    }
                }
                Change::Remove(id) => drop(self.events.remove_namespace(id)),
            }
        }
        Ok(())
    }

    fn add(&mut self, Arrival { id, echo, http, counters }: Arrival) -> Result<(), Error> {
        let tenant = Tenant::new(counters);
        for (socket, service) in [(echo, Service::Echo), (http, Service::Http)] {
            let listener = Source::Listener { socket: socket.into(), service, tenant: Rc::clone(&tenant) };
            self.events.add(id, listener, Interest::Read)?;
        }
        Ok(())
    }
}

fn spare() -> Option<OwnedFd> {
    rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()
}
