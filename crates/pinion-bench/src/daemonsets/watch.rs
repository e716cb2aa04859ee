//! The events of a namespace's pods, with their times.

use std::{
    collections::BTreeMap,
    io::BufReader,
    process::Child,
    sync::mpsc::{Receiver, RecvTimeoutError, sync_channel},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process_group};

use super::{
    event::{Event, Message, State},
    kubectl::Kubectl,
};
use crate::engine::Failure;

/// How long events are awaited before other tasks may run.
const PERIOD: Duration = Duration::from_millis(500);

/// Events that may wait; their times are those of their arrival.
const EVENTS_MAX: usize = 1024;

/// A running `kubectl get --watch`, which is ended when this is dropped.
pub(super) struct Watch {
    kubectl: Child,
    events: Receiver<(Instant, Event)>,
    /// When a pod of each DaemonSet was first in a state.
    times: BTreeMap<(String, u8), Instant>,
}

impl Watch {
    /// Starts to watch.
    pub(super) fn start(kubectl: &Kubectl) -> Result<Self, Failure> {
        let mut child = kubectl.watch()?;
        let (sender, events) = sync_channel(EVENTS_MAX);
        if let Some(output) = child.stdout.take() {
            let read = move || {
                for message in serde_json::Deserializer::from_reader(BufReader::new(output))
                    .into_iter::<Message>()
                    .map_while(Result::ok)
                {
                    let now = Instant::now();
                    if Event::of(message).is_some_and(|event| sender.send((now, event)).is_err()) {
                        return;
                    }
                }
            };
            thread::Builder::new().spawn(read).map_err(|error| Failure(format!("start a thread: {error}")))?;
        }
        Ok(Self { kubectl: child, events, times: BTreeMap::new() })
    }

    /// Waits until a pod of each of these DaemonSets was in a state.
    ///
    /// # Errors
    /// It was not in time, or kubectl ended.
    pub(super) async fn wait(&mut self, sets: &[String], state: State, limit: Duration) -> Result<(), Failure> {
        let deadline = Instant::now() + limit;
        loop {
            let missing = sets.iter().filter(|set| self.time(set, state).is_none()).count();
            if missing == 0 {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(Failure(format!(
                    "{missing} of {} pods were not {} in {} s",
                    sets.len(),
                    state.name(),
                    limit.as_secs()
                )));
            }
            // A second interrupt ends the turn here.
            tokio::task::yield_now().await;
            match tokio::task::block_in_place(|| self.events.recv_timeout(PERIOD)) {
                Ok((time, event)) => {
                    self.times.entry((event.set, event.state as u8)).or_insert(time);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Failure("kubectl get pods --watch ended".to_owned()));
                }
            }
        }
    }

    /// Returns when a pod of a DaemonSet was first in a state.
    pub(super) fn time(&self, set: &str, state: State) -> Option<Instant> {
        self.times.get(&(set.to_owned(), state as u8)).copied()
    }
}

impl State {
    fn name(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Ready => "ready",
            Self::Ending => "ending",
            Self::Removed => "removed",
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = kill_process_group(Pid::from_child(&self.kubectl), Signal::KILL);
        let _ = self.kubectl.wait();
    }
}
