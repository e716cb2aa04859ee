//! Supervisor of the monitor: finds or starts it, reconnects or replaces it when the connection is lost.

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

use super::{
    custody::{Custody, Inventory, has_unlogged_output},
    launch,
    link::Link,
    metrics::MonitorMetrics,
};
use crate::{Error, ErrorKind, error::failed, operation::failpoint, process};

/// How long a request waits for a monitor that is being replaced.
const RESTORE_TIMEOUT: Duration = Duration::from_secs(15);
/// How long a monitor that closed its connection may take to exit before it is killed.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);
/// Delay between attempts to start a monitor.
const BACKOFF: Duration = Duration::from_millis(500);

/// Notification for the engine.
#[derive(Debug)]
pub(crate) enum Notice {
    /// An event of the monitor.
    Event(Event),
    /// Another monitor took over: containers may have become children of this process.
    Replaced,
}

/// Handle of the monitor, which stays valid when the monitor's process is replaced. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Monitor(pub(super) Arc<Inner>);

pub(super) struct Inner {
    state: PathBuf,
    program: PathBuf,
    link: watch::Sender<Option<Connected>>,
    pub(super) custody: Custody,
    pub(super) execs: Mutex<HashMap<String, oneshot::Sender<ExitStatus>>>,
    /// Execs requested since the start; `None` once they need not be distinguished from those of an earlier daemon any
    /// longer.
    pub(super) new_execs: Mutex<Option<HashSet<String>>>,
    events: mpsc::UnboundedSender<Event>,
    /// Set when the monitor was shut down and must not be started again.
    pub(super) shut_down: AtomicBool,
    metrics: Arc<MonitorMetrics>,
}

#[derive(Clone)]
struct Connected {
    link: Arc<Link>,
    pidfd: Arc<OwnedFd>,
    welcome: Welcome,
}

impl Monitor {
    /// Finds the monitor that runs on this state directory, or starts one. What it holds is taken into [`Custody`]
    /// before anything else, so that the monitor may die at any time. Returns the inventory.
    pub(crate) async fn open(
        state: PathBuf,
        program: PathBuf,
        notices: mpsc::UnboundedSender<Notice>,
    ) -> Result<(Self, Inventory), Error> {
        #[expect(clippy::disallowed_methods, reason = "one event per container and command that the monitor holds")]
        let (events, event_receiver) = mpsc::unbounded_channel();
        if let Err(error) = monitor_api::sweep(&state) {
            tracing::warn!("remove leftovers of a monitor's socket: {error}");
        }
        let inner = Arc::new(Inner::new(state, program, events));
        let (connected, holdings) = inner.first().await?;
        let inventory = inner.custody.take(holdings);
        failpoint::lose("monitor.opened", &connected.pidfd);
        inner.link.send_replace(Some(connected.clone()));
        tokio::spawn(deliver(Arc::downgrade(&inner), event_receiver, notices.clone()));
        offload::spawn(supervise(Arc::downgrade(&inner), connected, notices));
        Ok((Self(inner), inventory))
    }

    /// Returns the `Welcome` of the connected monitor.
    pub(crate) fn welcome(&self) -> Result<Welcome, Error> {
        match &*self.0.link.borrow() {
            Some(connected) => Ok(connected.welcome.clone()),
            None => Err(Error::unavailable("the monitor is not connected; it is being started again")),
        }
    }

    /// Like [`Self::welcome`], but waits for at most `timeout` if the connection is being restored.
    pub(crate) async fn welcome_within(&self, timeout: Duration) -> Result<Welcome, Error> {
        let mut link = self.0.link.subscribe();
        // The outcome does not matter: the call below returns the error.
        let _ = tokio::time::timeout(timeout, link.wait_for(is_usable)).await;
        self.welcome()
    }

    pub(crate) fn metrics(&self) -> &MonitorMetrics {
        &self.0.metrics
    }

    /// Replaces the stored `Welcome` after the monitor executed another program in the same process.
    pub(super) fn update_welcome(&self, welcome: &Welcome) {
        self.0.link.send_modify(|connected| {
            if let Some(connected) = connected.as_mut().filter(|connected| connected.welcome.pid == welcome.pid) {
                connected.welcome = welcome.clone();
            }
        });
    }

    pub(crate) fn custody(&self) -> &Custody {
        &self.0.custody
    }

    /// Returns the pidfd of the connected monitor.
    pub(super) fn pidfd(&self) -> Option<Arc<OwnedFd>> {
        self.0.link.borrow().as_ref().map(|connected| Arc::clone(&connected.pidfd))
    }

    /// Returns the connection. Waits for one that is being restored.
    pub(super) async fn link(&self) -> Result<Arc<Link>, Error> {
        let mut link = self.0.link.subscribe();
        let restored = tokio::time::timeout(RESTORE_TIMEOUT, link.wait_for(is_usable)).await;
        match restored {
            Ok(Ok(connected)) => Ok(connected.as_ref().expect("checked by wait_for").link.clone()),
            _ => Err(Error::unavailable(format!(
                "the monitor is not running and could not be started within {} s: see the daemon's log",
                RESTORE_TIMEOUT.as_secs()
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
            new_execs: Mutex::new(Some(HashSet::new())),
            events,
            shut_down: AtomicBool::new(false),
            metrics: Arc::default(),
        }
    }

    /// Opens the first connection and requests the inventory. Retries if the monitor exits at this moment.
    async fn first(&self) -> Result<(Connected, Vec<(Holding, Attachments)>), Error> {
        const TRIES: usize = 3;
        let mut tries = 0;
        loop {
            tries += 1;
            let opened = async {
                let connected = self.connect(None).await?;
                let holdings = connected.link.inventory().await?;
                Ok((connected, holdings))
            };
            match opened.await {
                Err(Error { kind: ErrorKind::Unavailable, .. }) if tries < TRIES => tokio::time::sleep(BACKOFF).await,
                opened => return opened,
            }
        }
    }

    /// Connects to the running monitor, else starts one. A previous monitor of this state must have exited by then.
    async fn connect(&self, before: Option<&OwnedFd>) -> Result<Connected, Error> {
        let connection = match monitor_api::connect(&self.state) {
            Ok(connection) => connection,
            Err(SocketError::Absent(_)) => {
                if let Some(before) = before {
                    wait_or_kill(before).await?;
                }
                let pid = launch::launch(&self.program, &self.state)?;
                self.reap_on_exit(pid)?;
                monitor_api::connect(&self.state)
                    .map_err(|e| Error::unavailable(format!("connect to the monitor: {e}")))?
            }
            Err(error) => return Err(Error::unavailable(format!("connect to the monitor: {error}"))),
        };
        let (link, welcome) = Link::open(connection, self.events.clone(), self.metrics.clone()).await?;
        let pid = i32::try_from(welcome.pid).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| Error::internal("the monitor reported pid 0"))?;
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(failed("open the monitor's pidfd"))?;
        Ok(Connected { link, pidfd: Arc::new(pidfd), welcome })
    }

    fn reap_on_exit(&self, pid: Pid) -> Result<(), Error> {
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(failed("open the monitor's pidfd"))?;
        tokio::spawn(async move {
            if process::ended(&pidfd).await.is_ok() {
                process::reap(&pidfd);
            }
        });
        Ok(())
    }

    /// Connects again, and hands over everything that the monitor does not hold.
    async fn restore(&self, before: &OwnedFd) -> Result<Connected, Error> {
        let connected = self.connect(Some(before)).await?;
        let mut held = HeldState::list(connected.link.inventory().await?);
        let known: Vec<String> = held.iter().map(|held| held.holding.container.id.clone()).collect();
        for (request, attachments) in self.custody.adoptions(&known)? {
            if let Err(error) = connected.link.request(request, attachments).await {
                // A failure must not keep the remaining objects from being handed over.
                tracing::warn!("hand over descriptors to the new monitor: {error}");
            }
        }
        let pending = self.report_missed(&held);
        if !pending.is_empty() {
            // Output that was logged after the first inventory was sent would otherwise stay reported as pending.
            held = HeldState::list(connected.link.inventory().await?);
            self.report(missed_drains(&held, &pending));
        }
        Ok(connected)
    }
}

impl Inner {
    /// Reports what the same monitor observed while it was not connected: it does not send events for that. Returns the
    /// containers whose output was reported as pending.
    fn report_missed(&self, held: &[HeldState]) -> Vec<String> {
        let events = held.iter().flat_map(|held| {
            let id = &held.holding.container.id;
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
            // If the engine has ended, its successor requests the inventory.
            let _ = self.events.send(event);
        }
    }
}

/// State of an object that a monitor holds, without the descriptors.
struct HeldState {
    holding: Holding,
    has_output: bool,
}

impl HeldState {
    fn list(inventory: Vec<(Holding, Attachments)>) -> Vec<Self> {
        let held = |(holding, files): (Holding, Attachments)| {
            let has_output = has_unlogged_output(&holding, &files);
            Self { holding, has_output }
        };
        inventory.into_iter().map(held).collect()
    }

    /// Returns the events of a container that were missed. `exited` and `pending` are what is known of it so far.
    fn missed(&self, exited: bool, pending: bool) -> Vec<Event> {
        let HoldingState::Exited(status) = &self.holding.state else { return Vec::new() };
        let container = || self.holding.container.id.clone();
        let mut events = Vec::new();
        if self.has_output && !exited {
            events.push(Event::OutputPending { container: container() });
        }
        if !exited {
            events.push(Event::Exited { container: container(), status: status.clone() });
        }
        if !self.has_output && pending {
            events.push(Event::Drained { container: container() });
        }
        events
    }
}

/// Returns the events for containers whose output was pending and is in their logs now.
fn missed_drains(held: &[HeldState], pending: &[String]) -> Vec<Event> {
    let drained = |id: &&String| !held.iter().any(|held| held.holding.container.id == **id && held.has_output);
    pending.iter().filter(drained).map(|id| Event::Drained { container: id.clone() }).collect()
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(connected) = &*self.link.borrow() {
            connected.link.close();
        }
    }
}

fn is_usable(connected: &Option<Connected>) -> bool {
    connected.as_ref().is_some_and(|connected| !connected.link.is_closed())
}

/// Waits until a monitor that closed its socket has exited, and kills it if it does not.
pub(super) async fn wait_or_kill(monitor: &OwnedFd) -> Result<(), Error> {
    if tokio::time::timeout(EXIT_TIMEOUT, process::ended(monitor)).await.is_err() {
        tracing::warn!("the monitor closed its socket but does not exit: killing it");
        // It may have exited in the meantime.
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
        if inner.shut_down.load(Ordering::Acquire) {
            return;
        }
        inner.execs.lock().unwrap_or_else(PoisonError::into_inner).clear();
        tracing::warn!(pid = connected.welcome.pid, "the connection to the monitor was lost");
        let before = Arc::clone(&connected.pidfd);
        connected = loop {
            match inner.restore(&before).await {
                Ok(connected) => break connected,
                // The new monitor may die, too.
                Err(error) => tracing::warn!("restore the monitor: {error}; retrying in {} ms", BACKOFF.as_millis()),
            }
            tokio::time::sleep(BACKOFF).await;
        };
        tracing::info!(pid = connected.welcome.pid, "a monitor took over");
        inner.metrics.restored.add(1);
        inner.link.send_replace(Some(connected.clone()));
        let _ = notices.send(Notice::Replaced);
    }
}

/// Sends exits of exec'd processes to their waiting sessions, and all other events to the engine.
async fn deliver(
    inner: std::sync::Weak<Inner>,
    mut events: mpsc::UnboundedReceiver<Event>,
    notices: mpsc::UnboundedSender<Notice>,
) {
    while let Some(event) = events.recv().await {
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
