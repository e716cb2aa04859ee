//! Events of pods and containers, for `GetContainerEvents`.
//!
//! ```text
//! record changes its phase ──▶ broadcast, bounded ──▶ each listener at its own pace
//!  (under the lock of its        never waits            └─ a slow listener loses the oldest events: it gets `Lagged`,
//!   writers: in order)                                     and must list again
//! ```
//! An event carries the status of its pod and of all containers in the pod at that moment. Without listeners no event
//! is built.

use std::sync::{
    Arc,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

use tokio::sync::broadcast::{self, error::RecvError};

use super::{ContainerPhase, ContainerRecord, ObjectId, SandboxPhase};
use crate::{ContainerStatus, SandboxStatus};

/// Number of events that a listener may lag behind.
const BACKLOG_MAX: usize = 1024;

/// Kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// The object was created.
    Created,
    /// A container was started; a pod is ready for containers.
    Started,
    /// A container exited; a pod was stopped.
    Stopped,
    /// The object was removed.
    Deleted,
}

/// An event of a pod or a container.
#[derive(Clone, Debug)]
pub struct Event {
    /// Kind of the event.
    pub kind: EventKind,
    /// Id of the container, or of the pod itself.
    pub id: ObjectId,
    /// Time of the event, in nanoseconds since the epoch.
    pub at: u64,
    /// The pod; `None` if the container outlived the record of its pod.
    pub sandbox: Option<SandboxStatus>,
    /// The containers of the pod, without a deleted one.
    pub containers: Vec<ContainerStatus>,
}

/// Receiver of events.
#[derive(Debug)]
pub struct EventStream(broadcast::Receiver<Arc<Event>>);

/// Error of a listener that lagged so far behind that events were dropped. The listener must list pods and containers
/// again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} events were dropped because their reader was too slow; list pods and containers, then listen again")]
pub struct Lagged(pub u64);

impl EventStream {
    /// Returns the next event; `None` after the engine was dropped. Events of one pod or container arrive in the order
    /// in which they happened.
    ///
    /// # Errors
    /// [`Lagged`]; later events can still be received.
    pub async fn next(&mut self) -> Result<Option<Arc<Event>>, Lagged> {
        match self.0.recv().await {
            Ok(event) => Ok(Some(event)),
            Err(RecvError::Closed) => Ok(None),
            Err(RecvError::Lagged(missed)) => Err(Lagged(missed)),
        }
    }
}

/// Sender of events.
#[derive(Debug)]
pub(crate) struct Events {
    sender: broadcast::Sender<Arc<Event>>,
    /// Number of changes, counted even without listeners.
    changes: AtomicU64,
    /// Number of records that are being changed at this moment.
    changing: AtomicUsize,
}

/// Guard held while a record is changed. A task that is woken by the change must not be answered from a list cached
/// before it; see [`Events::changes`].
#[must_use]
pub(crate) struct ChangeGuard<'a>(&'a Events);

impl Drop for ChangeGuard<'_> {
    fn drop(&mut self) {
        self.0.changed();
        self.0.changing.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Default for Events {
    fn default() -> Self {
        Self { sender: broadcast::Sender::new(BACKLOG_MAX), changes: AtomicU64::new(0), changing: AtomicUsize::new(0) }
    }
}

impl Events {
    /// Returns a number that differs after each change of a record. While a record is being changed, each call returns
    /// a different number.
    pub(crate) fn changes(&self) -> u64 {
        match self.changing.load(Ordering::SeqCst) {
            0 => self.changes.load(Ordering::SeqCst),
            _ => self.changes.fetch_add(1, Ordering::SeqCst) + 1,
        }
    }

    /// Announces that a record is about to change where others can see it.
    pub(crate) fn changing(&self) -> ChangeGuard<'_> {
        self.changing.fetch_add(1, Ordering::SeqCst);
        ChangeGuard(self)
    }

    /// Counts a change: a record was changed, added or removed.
    pub(crate) fn changed(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
    }

    /// Subscribes to events from now on. A slow listener never delays the engine.
    pub(super) fn subscribe(&self) -> EventStream {
        EventStream(self.sender.subscribe())
    }

    /// Sends an event, which is built only if there are listeners.
    pub(super) fn send(&self, build: impl FnOnce() -> Event) {
        if self.sender.receiver_count() > 0 {
            // The last listener may have been dropped in the meantime.
            let _ = self.sender.send(Arc::new(build()));
        }
    }
}

/// Returns the events for a change of a container's record.
pub(super) fn container_events(before: ContainerPhase, now: &ContainerRecord) -> &'static [EventKind] {
    use ContainerPhase::{Created, Creating, Exited, Running, Starting};
    use EventKind::{Created as CreatedEvent, Started, Stopped};
    match (before, now.phase) {
        (Creating, Created) => &[CreatedEvent],
        (Creating, Exited) => &[CreatedEvent, Stopped],
        (Created | Starting, Running) => &[Started],
        // The program ran and exited before its start was recorded.
        (Starting, Exited) if !now.has_start_failed() => &[Started, Stopped],
        (Created | Starting | Running, Exited) => &[Stopped],
        _ => &[],
    }
}

/// Returns the events for a change of a sandbox's record.
pub(super) fn sandbox_events(before: SandboxPhase, now: SandboxPhase) -> &'static [EventKind] {
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
    use crate::{Cause, SandboxId};

    fn kinds(before: ContainerPhase, phase: ContainerPhase, cause: Option<Cause>) -> Vec<EventKind> {
        let record = ContainerRecord { phase, cause, ..ContainerRecord::default() };
        container_events(before, &record).to_vec()
    }

    #[test]
    fn a_program_that_exits_at_once_is_reported_as_started_and_stopped() {
        use ContainerPhase::{Created, Creating, Exited, Running, Starting};
        use EventKind::{Created as CreatedEvent, Started, Stopped};
        assert_eq!(kinds(Creating, Created, None), [CreatedEvent]);
        assert_eq!(kinds(Created, Starting, None), []);
        assert_eq!(kinds(Starting, Running, None), [Started]);
        assert_eq!(kinds(Running, Exited, Some(Cause::Exited)), [Stopped]);
        assert_eq!(kinds(Starting, Exited, Some(Cause::Exited)), [Started, Stopped]);
        assert_eq!(kinds(Starting, Exited, Some(Cause::StartFailed { command: None })), [Stopped]);
        assert_eq!(kinds(Exited, Exited, Some(Cause::Exited)), []);
    }

    #[test]
    fn a_pod_starts_when_it_is_ready() {
        use SandboxPhase::{Networked, Ready, Reserved, Stopped};
        assert_eq!(sandbox_events(Reserved, Networked), []);
        assert_eq!(sandbox_events(Networked, Ready), [EventKind::Created, EventKind::Started]);
        assert_eq!(sandbox_events(Ready, Stopped), [EventKind::Stopped]);
        assert_eq!(sandbox_events(Stopped, Stopped), []);
    }

    #[tokio::test]
    async fn a_slow_listener_gets_lagged_and_can_continue() {
        let sender = broadcast::Sender::new(2);
        let mut stream = EventStream(sender.subscribe());
        let id = |letter: &str| ObjectId::Sandbox(SandboxId::parse(&letter.repeat(64)).expect("an id"));
        for id in ["a", "b", "c"].map(id) {
            let event = Event { kind: EventKind::Created, id, at: 1, sandbox: None, containers: Vec::new() };
            sender.send(Arc::new(event)).unwrap();
        }
        assert_eq!(stream.next().await.map(drop), Err(Lagged(1)));
        assert_eq!(stream.next().await.unwrap().unwrap().id, id("b"));
        drop(sender);
        assert_eq!(stream.next().await.unwrap().unwrap().id, id("c"));
        assert!(stream.next().await.unwrap().is_none());
    }
}
