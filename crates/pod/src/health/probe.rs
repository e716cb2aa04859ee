//! A check that may hang: at most one runs at a time, on a thread of its own that may be lost to it.

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use tokio::sync::watch;

/// Enough for a netlink dump and a small JSON document.
const STACK: usize = 512 << 10;

/// See the module.
pub(super) struct Probe<T> {
    name: &'static str,
    check: Box<dyn Fn() -> T + Send + Sync>,
    state: watch::Sender<State<T>>,
}

/// What is known at a moment.
#[derive(Clone)]
pub(super) struct Seen<T> {
    /// The last answer.
    pub(super) latest: Option<T>,
    /// How long the check that runs has been running.
    pub(super) running: Option<Duration>,
}

struct State<T> {
    /// The last answer, and when its check began.
    latest: Option<(Instant, T)>,
    /// When the check began that runs.
    began: Option<Instant>,
}

impl<T: Clone + Send + Sync + 'static> Probe<T> {
    pub(super) fn new(name: &'static str, check: impl Fn() -> T + Send + Sync + 'static) -> Arc<Self> {
        let state = watch::Sender::new(State { latest: None, began: None });
        Arc::new(Self { name, check: Box::new(check), state })
    }

    /// The answer of a check that began now or later. Where none comes within `patience`, the one before; a check that
    /// has been running for longer is not waited for at all.
    pub(super) async fn look(self: &Arc<Self>, patience: Duration) -> Seen<T> {
        let (now, mut state) = (Instant::now(), self.state.subscribe());
        let fresh = async {
            // One that runs may have begun before: then one more.
            while state.borrow_and_update().latest.as_ref().is_none_or(|(began, _)| *began < now) {
                if !self.begin() || state.borrow().began.is_some_and(|began| now - began > patience) {
                    break;
                }
                if state.changed().await.is_err() {
                    break;
                }
            }
        };
        // The last answer is what there is, then.
        let _ = tokio::time::timeout(patience, fresh).await;
        self.seen()
    }

    /// Starts a check unless one runs. Whether one runs now.
    pub(super) fn begin(self: &Arc<Self>) -> bool {
        let now = Instant::now();
        let begins = self.state.send_if_modified(|state| {
            let begins = state.began.is_none();
            state.began.get_or_insert(now);
            begins
        });
        if !begins {
            return true;
        }
        let running = Running { probe: Arc::clone(self), began: now };
        let thread = thread::Builder::new().name(self.name.to_owned()).stack_size(STACK);
        let spawned = thread.spawn(move || {
            let answer = (running.probe.check)();
            running.probe.state.send_modify(|state| *state = State { latest: Some((now, answer)), began: None });
        });
        spawned.inspect_err(|error| tracing::warn!("start thread {}: {error}", self.name)).is_ok()
    }

    pub(super) fn seen(&self) -> Seen<T> {
        let state = self.state.borrow();
        let latest = state.latest.as_ref().map(|(_, answer)| answer.clone());
        Seen { latest, running: state.began.map(|began| began.elapsed()) }
    }
}

/// A check under way; it ends also where it panics or its thread never starts.
struct Running<T> {
    probe: Arc<Probe<T>>,
    began: Instant,
}

impl<T> Drop for Running<T> {
    fn drop(&mut self) {
        self.probe.state.send_if_modified(|state| {
            let running = state.began == Some(self.began);
            if running {
                state.began = None;
            }
            running
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Mutex,
        atomic::{AtomicU32, Ordering},
        mpsc,
    };

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn an_answer_is_never_older_than_its_question() {
        let count = AtomicU32::new(0);
        let probe = Probe::new("probe", move || count.fetch_add(1, Ordering::Relaxed));
        for expected in 0..3 {
            let seen = probe.look(LONG).await;
            assert_eq!((seen.latest, seen.running), (Some(expected), None));
        }
    }

    #[tokio::test]
    async fn a_check_that_hangs_is_waited_for_once_and_begun_once() {
        let (go, gate) = mpsc::channel::<u32>();
        let gate = Mutex::new(gate);
        let probe = Probe::new("probe", move || gate.lock().expect("one at a time").recv().expect("a word"));
        go.send(1).expect("sent");
        assert_eq!(probe.look(LONG).await.latest, Some(1));
        let patience = Duration::from_millis(100);
        for _ in 0..3 {
            let seen = probe.look(patience).await;
            assert_eq!(seen.latest, Some(1), "the last answer");
            assert!(seen.running.is_some());
        }
        let began = Instant::now();
        probe.look(Duration::from_millis(1)).await;
        assert!(began.elapsed() < LONG / 2, "not waited for");
        // The one that hung ends, and the next one begins.
        go.send(2).expect("sent");
        go.send(3).expect("sent");
        assert_eq!(probe.look(LONG).await.latest, Some(3));
    }

    #[tokio::test]
    async fn a_check_that_panics_is_begun_again() {
        let count = AtomicU32::new(0);
        let probe = Probe::new("probe", move || {
            let number = count.fetch_add(1, Ordering::Relaxed);
            assert_ne!(number, 0, "the first one panics");
            number
        });
        assert_eq!(probe.look(LONG).await.latest, Some(1));
    }
}
