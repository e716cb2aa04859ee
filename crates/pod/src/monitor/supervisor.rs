//! Keeping a monitor: found or started at first, connected to again or replaced when the connection breaks.

use std::{
    collections::{HashMap, HashSet},
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use monitor_api::{Attachments, Event, ExitStatus, Holding, HoldingState, SocketError, Welcome};
use rustix::{
    fd::OwnedFd,
    process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal},
};
use tokio::sync::{mpsc, oneshot, watch};

use super::{Custody, Inventory, Link, MonitorFigures, custody::has_unlogged_output, launch};
use crate::{Error, ErrorKind, error::failed, failpoint, process};

/// How long a request waits for a monitor that is being replaced.
const RESTORE: Duration = Duration::from_secs(15);
/// How long a monitor that closed its connection may take to end before it is killed.
const FAREWELL: Duration = Duration::from_secs(2);
/// Between attempts to start one.
const BACKOFF: Duration = Duration::from_millis(500);

/// What the engine hears.
#[derive(Debug)]
pub(crate) enum Notice {
    /// From the monitor.
    Event(Event),
    /// Another monitor took over: containers may have fallen to this process.
    Replaced,
}

/// The monitor, whichever process it is at the time. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Monitor(pub(super) Arc<Inner>);

pub(super) struct Inner {
    state: PathBuf,
    program: PathBuf,
    link: watch::Sender<Option<Connected>>,
    pub(super) custody: Custody,
    pub(super) execs: Mutex<HashMap<String, oneshot::Sender<ExitStatus>>>,
    /// Commands begun since the start; `None` once nobody distinguishes them from those of an earlier daemon any
    /// longer.
    pub(super) begun: Mutex<Option<HashSet<String>>>,
    events: mpsc::UnboundedSender<Event>,
    /// No monitor is wanted any more.
    pub(super) over: AtomicBool,
    figures: Arc<MonitorFigures>,
}

#[derive(Clone)]
struct Connected {
    link: Arc<Link>,
    pidfd: Arc<OwnedFd>,
    welcome: Welcome,
}

impl Monitor {
    /// Finds the monitor that runs on this state directory, or starts one. What it holds is in [`Custody`] before
    /// anything else happens, so that it may die at once, and is told.
    pub(crate) async fn open(
        state: PathBuf,
        program: PathBuf,
        notices: mpsc::UnboundedSender<Notice>,
    ) -> Result<(Self, Inventory), Error> {
        let (events, heard) = mpsc::unbounded_channel();
        if let Err(error) = monitor_api::sweep(&state) {
            tracing::warn!("remove what a daemon that died left of a monitor's socket: {error}");
        }
        let inner = Arc::new(Inner::new(state, program, events));
        let (connected, holdings) = inner.first().await?;
        let inventory = inner.custody.take(holdings);
        failpoint::lose("monitor.opened", &connected.pidfd);
        inner.link.send_replace(Some(connected.clone()));
        tokio::spawn(deliver(Arc::downgrade(&inner), heard, notices.clone()));
        offload::spawn(supervise(Arc::downgrade(&inner), connected, notices));
        Ok((Self(inner), inventory))
    }

    /// The monitor's version and pid, or why there is none.
    pub(crate) fn welcome(&self) -> Result<Welcome, Error> {
        match &*self.0.link.borrow() {
            Some(connected) => Ok(connected.welcome.clone()),
            None => Err(Error::unavailable("the monitor is not connected; it is being started again")),
        }
    }

    /// The same, after at most `patience` for a connection that is being restored.
    pub(crate) async fn welcome_within(&self, patience: Duration) -> Result<Welcome, Error> {
        let mut link = self.0.link.subscribe();
        // Whatever came of it: the next line says it.
        let _ = tokio::time::timeout(patience, link.wait_for(usable)).await;
        self.welcome()
    }

    pub(crate) fn figures(&self) -> &MonitorFigures {
        &self.0.figures
    }

    /// Another program answers in the same process.
    pub(super) fn welcomed(&self, welcome: &Welcome) {
        self.0.link.send_modify(|connected| {
            if let Some(connected) = connected.as_mut().filter(|connected| connected.welcome.pid == welcome.pid) {
                connected.welcome = welcome.clone();
            }
        });
    }

    pub(crate) fn custody(&self) -> &Custody {
        &self.0.custody
    }

    /// The process that is connected.
    pub(super) fn pidfd(&self) -> Option<Arc<OwnedFd>> {
        self.0.link.borrow().as_ref().map(|connected| Arc::clone(&connected.pidfd))
    }

    /// The connection, waiting for one that is being restored.
    pub(super) async fn link(&self) -> Result<Arc<Link>, Error> {
        let mut link = self.0.link.subscribe();
        let restored = tokio::time::timeout(RESTORE, link.wait_for(usable)).await;
        match restored {
            Ok(Ok(connected)) => Ok(connected.as_ref().expect("just seen").link.clone()),
            _ => Err(Error::unavailable(format!(
                "the monitor does not run and could not be started within {} s: see the daemon's log",
                RESTORE.as_secs()
            ))),
        }
    }
}

impl Inner {
    fn new(state: PathBuf, program: PathBuf, events: mpsc::UnboundedSender<Event>) -> Self {
        Self {
            state,
            program,
            link: watch::Sender::new(None),
            custody: Custody::default(),
            execs: Mutex::new(HashMap::new()),
            begun: Mutex::new(Some(HashSet::new())),
            events,
            over: AtomicBool::new(false),
            figures: Arc::default(),
        }
    }

    /// The first connection, and what is held. A monitor that ends at this moment gives way to another.
    async fn first(&self) -> Result<(Connected, Vec<(Holding, Attachments)>), Error> {
        const TRIES: usize = 3;
        let mut tries = 0;
        loop {
            tries += 1;
            let found = async {
                let connected = self.connect(None).await?;
                let holdings = connected.link.inventory().await?;
                Ok((connected, holdings))
            };
            match found.await {
                Err(Error { kind: ErrorKind::Unavailable, .. }) if tries < TRIES => tokio::time::sleep(BACKOFF).await,
                found => return found,
            }
        }
    }

    /// Connects to a monitor that runs, else starts one. A monitor that held this state before must be gone first.
    async fn connect(&self, before: Option<&OwnedFd>) -> Result<Connected, Error> {
        let connection = match monitor_api::connect(&self.state) {
            Ok(connection) => connection,
            Err(SocketError::Absent(_)) => {
                if let Some(before) = before {
                    see_off(before).await?;
                }
                let pid = launch::launch(&self.program, &self.state)?;
                self.reap_when_over(pid)?;
                monitor_api::connect(&self.state)
                    .map_err(|e| Error::unavailable(format!("connect to the monitor: {e}")))?
            }
            Err(error) => return Err(Error::unavailable(format!("connect to the monitor: {error}"))),
        };
        let (link, welcome) = Link::open(connection, self.events.clone(), self.figures.clone()).await?;
        let pid = i32::try_from(welcome.pid).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| Error::internal("the monitor told pid 0"))?;
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(failed("open the monitor's pidfd"))?;
        Ok(Connected { link, pidfd: Arc::new(pidfd), welcome })
    }

    fn reap_when_over(&self, pid: Pid) -> Result<(), Error> {
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(failed("open the monitor's pidfd"))?;
        tokio::spawn(async move {
            if process::ended(&pidfd).await.is_ok() {
                process::reap(&pidfd);
            }
        });
        Ok(())
    }

    /// A connection again, with everything handed over that the monitor does not hold.
    async fn restore(&self, before: &OwnedFd) -> Result<Connected, Error> {
        let connected = self.connect(Some(before)).await?;
        let mut held = Held::list(connected.link.inventory().await?);
        let known: Vec<String> = held.iter().map(|held| held.holding.id.clone()).collect();
        for (request, attachments) in self.custody.adoptions(&known)? {
            if let Err(error) = connected.link.ask(request, attachments).await {
                // One that cannot be handed over must not keep the others from it.
                tracing::warn!("hand over to the new monitor: {error}");
            }
        }
        let pending = self.report_missed(&held);
        if !pending.is_empty() {
            // Output that was logged since the inventory was reported before the events that say that it is pending.
            held = Held::list(connected.link.inventory().await?);
            self.report(missed_drains(&held, &pending));
        }
        Ok(connected)
    }
}

impl Inner {
    /// Reports what the same monitor saw while nobody was connected: it sends no event for that anymore. Returns the
    /// containers whose output was reported as pending.
    fn report_missed(&self, held: &[Held]) -> Vec<String> {
        let events = held.iter().flat_map(|held| {
            let id = &held.holding.id;
            held.missed(self.custody.has_exited(id), self.custody.is_pending(id))
        });
        let events: Vec<Event> = events.collect();
        let pending = |event: &Event| match event {
            Event::OutputPending { container } => Some(container.clone()),
            _ => None,
        };
        let pending = events.iter().filter_map(pending).collect();
        self.report(events);
        pending
    }

    fn report(&self, events: Vec<Event>) {
        for event in events {
            // The engine ended: its successor reads the inventory.
            let _ = self.events.send(event);
        }
    }
}

/// What a monitor holds, without the descriptors.
struct Held {
    holding: Holding,
    has_output: bool,
}

impl Held {
    fn list(inventory: Vec<(Holding, Attachments)>) -> Vec<Self> {
        let held = |(holding, files): (Holding, Attachments)| {
            let has_output = has_unlogged_output(&holding, &files);
            Self { holding, has_output }
        };
        inventory.into_iter().map(held).collect()
    }

    /// The events that were missed of a container: `ended` and `pending` are what is known of it.
    fn missed(&self, ended: bool, pending: bool) -> Vec<Event> {
        let HoldingState::Exited(status) = &self.holding.state else { return Vec::new() };
        let container = || self.holding.id.clone();
        let mut events = Vec::new();
        if self.has_output && !ended {
            events.push(Event::OutputPending { container: container() });
        }
        if !ended {
            events.push(Event::Exited { container: container(), status: status.clone() });
        }
        if !self.has_output && pending {
            events.push(Event::Drained { container: container() });
        }
        events
    }
}

/// For containers whose output was pending and is in their logs now.
fn missed_drains(held: &[Held], pending: &[String]) -> Vec<Event> {
    let drained = |id: &&String| !held.iter().any(|held| held.holding.id == **id && held.has_output);
    pending.iter().filter(drained).map(|id| Event::Drained { container: id.clone() }).collect()
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(connected) = &*self.link.borrow() {
            connected.link.close();
        }
    }
}

fn usable(connected: &Option<Connected>) -> bool {
    connected.as_ref().is_some_and(|connected| !connected.link.is_over())
}

/// Waits for a monitor to end that closed its socket, and kills one that does not.
pub(super) async fn see_off(monitor: &OwnedFd) -> Result<(), Error> {
    if tokio::time::timeout(FAREWELL, process::ended(monitor)).await.is_err() {
        tracing::warn!("the monitor closed its socket and does not end: it is killed");
        // It may have ended meanwhile.
        let _ = pidfd_send_signal(monitor, Signal::KILL);
        process::ended(monitor).await?;
    }
    Ok(())
}

async fn supervise(inner: std::sync::Weak<Inner>, first: Connected, notices: mpsc::UnboundedSender<Notice>) {
    let mut connected = first;
    loop {
        connected.link.closed().await;
        let Some(inner) = inner.upgrade() else { return };
        inner.link.send_replace(None);
        if inner.over.load(Ordering::Acquire) {
            return;
        }
        inner.execs.lock().unwrap_or_else(PoisonError::into_inner).clear();
        tracing::warn!(pid = connected.welcome.pid, "the connection to the monitor broke");
        let before = Arc::clone(&connected.pidfd);
        connected = loop {
            match inner.restore(&before).await {
                Ok(connected) => break connected,
                // One more that dies meanwhile is no failure yet.
                Err(error) => tracing::warn!("restore the monitor, again in {} ms: {error}", BACKOFF.as_millis()),
            }
            tokio::time::sleep(BACKOFF).await;
        };
        tracing::info!(pid = connected.welcome.pid, "a monitor took over");
        inner.figures.restored.add(1);
        inner.link.send_replace(Some(connected.clone()));
        let _ = notices.send(Notice::Replaced);
    }
}

/// Ends of commands go to who waits for them, the rest to the engine.
async fn deliver(
    inner: std::sync::Weak<Inner>,
    mut heard: mpsc::UnboundedReceiver<Event>,
    notices: mpsc::UnboundedSender<Notice>,
) {
    while let Some(event) = heard.recv().await {
        let Some(inner) = inner.upgrade() else { return };
        match event {
            Event::ExecExited { exec, status, .. } => {
                let waiting = inner.execs.lock().unwrap_or_else(PoisonError::into_inner).remove(&exec);
                if let Some(waiting) = waiting {
                    let _ = waiting.send(status);
                }
            }
            event => drop(notices.send(Notice::Event(event))),
        }
    }
}

#[cfg(test)]
mod tests;
