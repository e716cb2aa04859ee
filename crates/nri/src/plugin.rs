//! A registered plugin: its subscription, its policy, and its turns.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicI32, Ordering},
    },
    time::Duration,
};

use prost::Message;
use tokio::sync::OwnedMutexGuard;

use crate::{
    bounded::Bounded,
    collect::UPDATES_MAX,
    connection::{CallError, Connection, code},
    event::{ALL, Event},
    eviction::EvictionLimit,
    messages::{
        Configure, Container, ContainerUpdate, Empty, FailurePolicy, Pod, StateChange, Subscription, Synchronize,
        Synchronized,
    },
};

/// How many timeouts a request may wait for its turn.
const QUEUE_TIMEOUTS: u32 = 10;
/// Most bytes of pods and containers in one message of the synchronization. A single object that is longer is sent
/// alone.
const SYNCHRONIZE_BYTES: usize = 2 << 20;
/// Version of the protocol, as plugins see it.
const NRI_VERSION: &str = "v0.12.5";

/// A plugin that registered.
pub(crate) struct Plugin {
    /// Its index and name: `10-logger`.
    pub(crate) name: String,
    pub(crate) index: String,
    pub(crate) base: String,
    pub(crate) pid: Option<i32>,
    pub(crate) launched: bool,
    connection: Connection,
    events: i32,
    policy: FailurePolicy,
    /// Events for which it has no method, but which it may get by `StateChange`.
    old_form: AtomicI32,
    /// One request at a time, in the order of their arrival. Held while it is synchronized.
    turn: Arc<tokio::sync::Mutex<()>>,
    synchronized: AtomicBool,
    pub(crate) evictions: EvictionLimit,
    /// The containers and pods that it learned of when it was synchronized.
    known: OnceLock<HashSet<String>>,
    why_closed: Mutex<String>,
}

/// Identity of a plugin.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) index: String,
    pub(crate) base: String,
    pub(crate) pid: Option<i32>,
    pub(crate) launched: bool,
}

/// Why a plugin did not handle a request.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) message: String,
    /// Whether the plugin refused the request, in contrast to one that failed to answer.
    pub(crate) refused: bool,
    /// Whether its policy is that the request fails.
    pub(crate) fails_request: bool,
}

impl Plugin {
    /// Configures a plugin that registered.
    pub(crate) async fn configure(
        connection: Connection,
        identity: Identity,
        request: &Configure,
        timeout: Duration,
    ) -> Result<Self, String> {
        let request = Configure { nri_version: NRI_VERSION.to_owned(), ..request.clone() };
        let answer: Subscription =
            connection.call("Configure", &request, timeout).await.map_err(|e| format!("configure it: {e}"))?;
        let events = if answer.events == 0 { ALL } else { answer.events };
        if events & !ALL != 0 {
            return Err(format!("it subscribes to events that do not exist: {events:#x}"));
        }
        let Identity { index, base, pid, launched } = identity;
        Ok(Self {
            name: format!("{index}-{base}"),
            index,
            base,
            pid,
            launched,
            connection,
            events,
            policy: answer.failure_policy.unwrap_or_default(),
            old_form: AtomicI32::new(0),
            turn: Arc::default(),
            synchronized: AtomicBool::new(false),
            evictions: EvictionLimit::default(),
            known: OnceLock::new(),
            why_closed: Mutex::default(),
        })
    }

    pub(crate) fn subscribes(&self, event: Event) -> bool {
        event.is_in(self.events)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.connection.is_closed()
    }

    /// Whether it is synchronized and connected.
    pub(crate) fn is_usable(&self) -> bool {
        self.synchronized.load(Ordering::Acquire) && !self.is_closed()
    }

    /// Whether it learned of this object when it was synchronized, and not by an event.
    pub(crate) fn was_synchronized_with(&self, id: &str) -> bool {
        self.known.get().is_some_and(|known| known.contains(id))
    }

    pub(crate) async fn closed(&self) {
        self.connection.closed().await;
    }

    /// Takes the turn of a plugin that nobody else knows yet.
    pub(crate) fn first_turn(&self) -> Option<OwnedMutexGuard<()>> {
        Arc::clone(&self.turn).try_lock_owned().ok()
    }

    pub(crate) fn set_known(&self, ids: HashSet<String>) {
        let _ = self.known.set(ids);
    }

    pub(crate) fn close(&self, why: &str) {
        let mut reason = self.why_closed.lock().unwrap_or_else(PoisonError::into_inner);
        if reason.is_empty() {
            why.clone_into(&mut reason);
        }
        drop(reason);
        self.connection.close();
    }

    /// Sends all pods and containers, in as many messages as necessary, and returns the updates that the plugin
    /// requests. The whole may take as long as one request. The caller holds its turn.
    pub(crate) async fn synchronize(
        &self,
        pods: Vec<Pod>,
        containers: Vec<Container>,
        timeout: Duration,
    ) -> Result<Vec<ContainerUpdate>, String> {
        let deadline = tokio::time::Instant::now() + timeout;
        let (mut pods, mut containers) = (pods.into_iter().peekable(), containers.into_iter().peekable());
        loop {
            let mut room = SYNCHRONIZE_BYTES;
            let mut request = Synchronize { pods: take(&mut pods, &mut room), ..Synchronize::default() };
            request.containers = take(&mut containers, &mut room);
            request.more = pods.peek().is_some() || containers.peek().is_some();
            let left = deadline.saturating_duration_since(tokio::time::Instant::now());
            let answer: Synchronized =
                self.connection.call("Synchronize", &request, left).await.map_err(|e| e.to_string())?;
            if !request.more {
                self.synchronized.store(true, Ordering::Release);
                return match answer.update.len() {
                    0..=UPDATES_MAX => Ok(answer.update),
                    count => Err(format!("it requested {count} updates; at most {UPDATES_MAX} are allowed")),
                };
            }
            if !answer.more || !answer.update.is_empty() {
                return Err("it does not support to be synchronized by several messages".to_owned());
            }
        }
    }

    /// Sends a request when it is its turn. Returns `None` if the plugin does not subscribe to the event.
    pub(crate) async fn request<Answer: Bounded>(
        &self,
        event: Event,
        argument: &impl Message,
        timeout: Duration,
    ) -> Result<Option<Answer>, Failure> {
        if !self.subscribes(event) {
            return Ok(None);
        }
        let _turn = self.wait_for_turn(event, timeout).await?;
        match self.connection.call(&event.method(), argument, timeout).await {
            Ok(answer) => Ok(Some(answer)),
            Err(error) => Err(self.failure(event, &error)),
        }
    }

    /// Like [`Self::request`], for events without an answer, which older plugins get in another form.
    pub(crate) async fn notify(
        &self,
        event: Event,
        argument: &impl Message,
        (pod, container): (Option<&Pod>, Option<&Container>),
        timeout: Duration,
    ) -> Result<(), Failure> {
        if !self.subscribes(event) {
            return Ok(());
        }
        let _turn = self.wait_for_turn(event, timeout).await?;
        if !event.is_in(self.old_form.load(Ordering::Relaxed)) {
            match self.connection.call::<Empty>(&event.method(), argument, timeout).await {
                Ok(_) => return Ok(()),
                Err(CallError::Refused { code: code::UNIMPLEMENTED, .. }) if event.has_old_form() => {
                    self.old_form.fetch_or(1 << (event as i32 - 1), Ordering::Relaxed);
                }
                Err(error) => return Err(self.failure(event, &error)),
            }
        }
        let change = StateChange { event: event as i32, pod: pod.cloned(), container: container.cloned() };
        let changed = self.connection.call::<Empty>("StateChange", &change, timeout).await;
        changed.map(drop).map_err(|error| self.failure(event, &error))
    }

    async fn wait_for_turn(&self, event: Event, timeout: Duration) -> Result<OwnedMutexGuard<()>, Failure> {
        // The policy is about requests that the plugin received. One that is gone is not subscribed to anything.
        let fails_request = self.policy.fail_request && !self.is_closed();
        let failure = |reason: String| Failure {
            message: format!("plugin {}: {event:?}: {reason}", self.name),
            refused: false,
            fails_request,
        };
        let turn = tokio::select! {
            turn = Arc::clone(&self.turn).lock_owned() => turn,
            () = self.connection.closed() => return Err(failure(self.reason())),
            () = tokio::time::sleep(timeout * QUEUE_TIMEOUTS) => {
                return Err(failure("it is busy with earlier requests".to_owned()));
            }
        };
        if !self.is_usable() {
            return Err(failure(self.reason()));
        }
        Ok(turn)
    }

    fn reason(&self) -> String {
        let reason = self.why_closed.lock().unwrap_or_else(PoisonError::into_inner);
        if reason.is_empty() { CallError::Closed.to_string() } else { reason.clone() }
    }

    /// Applies the policy to a request that failed: a plugin that does not answer is disconnected.
    fn failure(&self, event: Event, error: &CallError) -> Failure {
        let refused = matches!(error, CallError::Refused { .. });
        let message = format!("plugin {}: {event:?}: {error}", self.name);
        let keep = match error {
            CallError::Refused { .. } | CallError::TooLong(_) => true,
            CallError::Timeout(_) => self.policy.keep_connected,
            CallError::Closed | CallError::Garbage(_) => false,
        };
        if !keep {
            tracing::warn!(plugin = self.name, event = ?event, %error, "a plugin failed and is disconnected");
            self.close(&format!("it was disconnected: {event:?}: {error}"));
        }
        Failure { message, refused, fails_request: self.policy.fail_request }
    }
}

/// Takes as many messages as there is room for, and at least one if the room is untouched.
fn take<T: Message>(from: &mut std::iter::Peekable<std::vec::IntoIter<T>>, room: &mut usize) -> Vec<T> {
    let mut taken = Vec::new();
    while let Some(next) = from.peek() {
        let length = next.encoded_len() + 8;
        let is_first = *room == SYNCHRONIZE_BYTES && taken.is_empty();
        if length > *room && !is_first {
            // What is left is for the next message, not for shorter objects that follow.
            *room = 0;
            break;
        }
        *room = room.saturating_sub(length);
        taken.extend(from.next());
    }
    taken
}
