//! What happens to pods and containers, for whoever listens (`GetContainerEvents`).
//!
//! ```text
//! record changes its phase ──▶ broadcast, bounded ──▶ each listener at its own pace
//!  (under the lock of its        never waits            └─ one that lags loses the oldest: it is told so, and lists
//!  anew writers: in order)
//! ```
//! An event carries the states of its pod and of all containers in it as they were at that moment. Nothing is made
//! while nobody listens.

use std::sync::{
    Arc, OnceLock, Weak,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

use tokio::sync::broadcast::{self, error::RecvError};

use crate::{
    ContainerStatus, Engine, SandboxStatus, clock,
    container::{Container, ContainerPhase, ContainerRecord},
    engine::Inner,
    sandbox::{Sandbox, SandboxPhase},
};

/// As many events may a listener be behind.
const BEHIND: usize = 1024;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// It is there.
    Created,
    /// It runs; a pod: containers can be made in it.
    Started,
    /// It ended; a pod: it was stopped.
    Stopped,
    /// It is gone.
    Deleted,
}

/// Something that happened to a pod or a container.
#[derive(Clone, Debug)]
pub struct Event {
    /// What.
    pub kind: EventKind,
    /// The container, or the pod itself.
    pub id: String,
    /// When, nanoseconds since the epoch.
    pub at: u64,
    /// The pod; `None` where a container outlives its pod's record.
    pub sandbox: Option<SandboxStatus>,
    /// The containers of the pod, one that is deleted no more.
    pub containers: Vec<ContainerStatus>,
}

/// A listener.
#[derive(Debug)]
pub struct EventStream(broadcast::Receiver<Arc<Event>>);

/// A listener was so far behind that events were dropped: what they told must be asked anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} events were dropped because their reader was too slow; list pods and containers, then listen again")]
pub struct Lagged(pub u64);

impl EventStream {
    /// The next one, in the order in which things happened to each pod and container; `None` when the engine is gone.
    ///
    /// # Errors
    /// [`Lagged`]; later events can be read still.
    pub async fn next(&mut self) -> Result<Option<Arc<Event>>, Lagged> {
        match self.0.recv().await {
            Ok(event) => Ok(Some(event)),
            Err(RecvError::Closed) => Ok(None),
            Err(RecvError::Lagged(missed)) => Err(Lagged(missed)),
        }
    }
}

impl Engine {
    /// Events from now on. A listener never delays what it listens to.
    pub fn events(&self) -> EventStream {
        let events = self.0.records.events();
        let _ = events.engine.set(Arc::downgrade(&self.0));
        EventStream(events.sender.subscribe())
    }
}

/// Where events come in.
#[derive(Debug)]
pub(crate) struct Events {
    sender: broadcast::Sender<Arc<Event>>,
    /// Set by the first listener.
    engine: OnceLock<Weak<Inner>>,
    /// Counts what changed, with listeners or without.
    changes: AtomicU64,
    /// Records that are being changed at this moment.
    changing: AtomicUsize,
}

/// A record that is being changed: who is woken by it must not be told a list from before it. Ends with its drop.
#[must_use]
pub(crate) struct Changing<'a>(&'a Events);

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        self.0.changed();
        self.0.changing.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Default for Events {
    fn default() -> Self {
        Self {
            sender: broadcast::Sender::new(BEHIND),
            engine: OnceLock::new(),
            changes: AtomicU64::new(0),
            changing: AtomicUsize::new(0),
        }
    }
}

impl Events {
    /// Another number after each change of a record; while one is being changed, each call gives another.
    pub(crate) fn changes(&self) -> u64 {
        match self.changing.load(Ordering::SeqCst) {
            0 => self.changes.load(Ordering::SeqCst),
            _ => self.changes.fetch_add(1, Ordering::SeqCst) + 1,
        }
    }

    /// A record is about to change where others can see it.
    pub(crate) fn changing(&self) -> Changing<'_> {
        self.changing.fetch_add(1, Ordering::SeqCst);
        Changing(self)
    }

    /// A record changed, came or went.
    pub(crate) fn changed(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
    }

    /// A container's record changed.
    pub(crate) fn container(&self, container: &Container, before: ContainerPhase, now: &ContainerRecord) {
        for kind in of_container(before, now) {
            self.tell(*kind, container.id(), &container.metadata.sandbox, None);
        }
    }

    /// A sandbox's record changed.
    pub(crate) fn sandbox(&self, sandbox: &Sandbox, before: SandboxPhase, now: SandboxPhase) {
        for kind in of_sandbox(before, now) {
            self.tell(*kind, sandbox.id(), sandbox.id(), Some(sandbox));
        }
    }

    /// A container's record is gone.
    pub(crate) fn container_gone(&self, container: &Container) {
        self.changed();
        if container.record().phase != ContainerPhase::Creating {
            self.tell(EventKind::Deleted, container.id(), &container.metadata.sandbox, None);
        }
    }

    /// A sandbox's record is gone.
    pub(crate) fn sandbox_gone(&self, sandbox: &Sandbox) {
        self.changed();
        if matches!(sandbox.record().phase, SandboxPhase::Ready | SandboxPhase::Stopped) {
            self.tell(EventKind::Deleted, sandbox.id(), sandbox.id(), Some(sandbox));
        }
    }

    fn tell(&self, kind: EventKind, id: &str, sandbox_id: &str, sandbox: Option<&Sandbox>) {
        if self.sender.receiver_count() == 0 {
            return;
        }
        let Some(engine) = self.engine.get().and_then(Weak::upgrade) else { return };
        let sandbox = match sandbox {
            Some(sandbox) => Some(sandbox.status()),
            None => engine.sandbox(sandbox_id).ok().map(|sandbox| sandbox.status()),
        };
        let containers = engine.containers_of(sandbox_id);
        let containers = containers.iter().map(|container| container.status()).filter(|status| !status.making);
        let containers = containers.collect();
        let event = Event { kind, id: id.to_owned(), at: clock::now(), sandbox, containers };
        // The last listener may have gone meanwhile.
        let _ = self.sender.send(Arc::new(event));
    }
}

fn of_container(before: ContainerPhase, now: &ContainerRecord) -> &'static [EventKind] {
    use ContainerPhase::{Created, Creating, Exited, Running, Starting};
    use EventKind::{Created as Made, Started, Stopped};
    match (before, now.phase) {
        (Creating, Created) => &[Made],
        (Creating, Exited) => &[Made, Stopped],
        (Created | Starting, Running) => &[Started],
        // Its program ran, and ended before its start was told.
        (Starting, Exited) if now.reason != "StartError" => &[Started, Stopped],
        (Created | Starting | Running, Exited) => &[Stopped],
        _ => &[],
    }
}

fn of_sandbox(before: SandboxPhase, now: SandboxPhase) -> &'static [EventKind] {
    match (before, now) {
        (SandboxPhase::Reserved | SandboxPhase::Networked, SandboxPhase::Ready) => {
            &[EventKind::Created, EventKind::Started]
        }
        (SandboxPhase::Ready, SandboxPhase::Stopped) => &[EventKind::Stopped],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(before: ContainerPhase, phase: ContainerPhase, reason: &str) -> Vec<EventKind> {
        let record = ContainerRecord { phase, reason: reason.to_owned(), ..ContainerRecord::default() };
        of_container(before, &record).to_vec()
    }

    #[test]
    fn a_short_life_is_told_whole() {
        use ContainerPhase::{Created, Creating, Exited, Running, Starting};
        use EventKind::{Created as Made, Started, Stopped};
        assert_eq!(kinds(Creating, Created, ""), [Made]);
        assert_eq!(kinds(Created, Starting, ""), []);
        assert_eq!(kinds(Starting, Running, ""), [Started]);
        assert_eq!(kinds(Running, Exited, "Error"), [Stopped]);
        assert_eq!(kinds(Starting, Exited, "Completed"), [Started, Stopped]);
        assert_eq!(kinds(Starting, Exited, "StartError"), [Stopped]);
        assert_eq!(kinds(Exited, Exited, "Error"), []);
    }

    #[test]
    fn a_pod_starts_when_it_is_ready() {
        use SandboxPhase::{Networked, Ready, Reserved, Stopped};
        assert_eq!(of_sandbox(Reserved, Networked), []);
        assert_eq!(of_sandbox(Networked, Ready), [EventKind::Created, EventKind::Started]);
        assert_eq!(of_sandbox(Ready, Stopped), [EventKind::Stopped]);
        assert_eq!(of_sandbox(Stopped, Stopped), []);
    }

    #[tokio::test]
    async fn who_lags_is_told() {
        let sender = broadcast::Sender::new(2);
        let mut stream = EventStream(sender.subscribe());
        for id in ["a", "b", "c"] {
            let event = Event { kind: EventKind::Created, id: id.into(), at: 1, sandbox: None, containers: Vec::new() };
            sender.send(Arc::new(event)).unwrap();
        }
        assert_eq!(stream.next().await.map(drop), Err(Lagged(1)));
        assert_eq!(stream.next().await.unwrap().unwrap().id, "b");
        drop(sender);
        assert_eq!(stream.next().await.unwrap().unwrap().id, "c");
        assert!(stream.next().await.unwrap().is_none());
    }
}
