//! Checks that may hang: at most one runs at a time, on a thread of its own that may hang with it.

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use tokio::sync::watch;

/// Enough for a netlink dump and a small JSON document.
const STACK: usize = 512 << 10;

/// A check that runs on a thread of its own.
pub(super) struct Probe<T> {
    name: &'static str,
    check: Box<dyn Fn() -> T + Send + Sync>,
    state: watch::Sender<Progress<T>>,
}

/// State of a check at one moment.
#[derive(Clone)]
pub(super) struct ProbeState<T> {
    /// The last result.
    pub(super) latest: Option<T>,
    /// For how long the current check has been running; `None` if none runs.
    pub(super) running: Option<Duration>,
}

struct Progress<T> {
    /// The last result, and when its check began.
    latest: Option<(Instant, T)>,
    /// When the current check began.
    began: Option<Instant>,
}

impl<T: Clone + Send + Sync + 'static> Probe<T> {
    pub(super) fn new(name: &'static str, check: impl Fn() -> T + Send + Sync + 'static) -> Arc<Self> {
        let state = watch::Sender::new(Progress { latest: None, began: None });
        Arc::new(Self { name, check: Box::new(check), state })
    }

    /// Returns the result of a check that began after this call. If none completes within `timeout`, returns the
    /// previous result; a check that has been running for longer than that is not waited for at all.
    pub(super) async fn check(self: &Arc<Self>, timeout: Duration) -> ProbeState<T> {
        let (now, mut state) = (Instant::now(), self.state.subscribe());
        let fresh = async {
            // A check that is running may have begun before this call: then another one is needed.
            while state.borrow_and_update().latest.as_ref().is_none_or(|(began, _)| *began < now) {
                if !self.begin() || state.borrow().began.is_some_and(|began| now - began > timeout) {
                    break;
                }
                if state.changed().await.is_err() {
                    break;
                }
            }
        };
        // On a timeout the previous result is returned.
        let _ = tokio::time::timeout(timeout, fresh).await;
        self.state()
    }

    /// Starts a check unless one is running. Reports whether one is running now.
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
        let running = RunningCheck { probe: Arc::clone(self), began: now };
        let thread = thread::Builder::new().name(self.name.to_owned()).stack_size(STACK);
        let spawned = thread.spawn(move || {
            let result = (running.probe.check)();
            running.probe.state.send_modify(|state| *state = Progress { latest: Some((now, result)), began: None });
        });
        spawned.inspect_err(|error| tracing::warn!("start thread {}: {error}", self.name)).is_ok()
    }

    pub(super) fn state(&self) -> ProbeState<T> {
        let progress = self.state.borrow();
        let latest = progress.latest.as_ref().map(|(_, result)| result.clone());
        ProbeState { latest, running: progress.began.map(|began| began.elapsed()) }
    }
}

/// Guard of a check: marks it as ended even if it panics or its thread cannot be started.
struct RunningCheck<T> {
    probe: Arc<Probe<T>>,
    began: Instant,
}

impl<T> Drop for RunningCheck<T> {
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
    async fn a_result_is_never_older_than_its_request() {
        let count = AtomicU32::new(0);
        let probe = Probe::new("probe", move || count.fetch_add(1, Ordering::Relaxed));
        for expected in 0..3 {
            let state = probe.check(LONG).await;
            assert_eq!((state.latest, state.running), (Some(expected), None));
        }
    }

    #[tokio::test]
    async fn a_check_that_hangs_is_started_once_and_waited_for_once() {
        let (go, gate) = mpsc::channel::<u32>();
        let gate = Mutex::new(gate);
        let probe = Probe::new("probe", move || gate.lock().expect("one at a time").recv().expect("a message"));
        go.send(1).expect("sent");
        assert_eq!(probe.check(LONG).await.latest, Some(1));
        let timeout = Duration::from_millis(100);
        for _ in 0..3 {
            let state = probe.check(timeout).await;
            assert_eq!(state.latest, Some(1), "the last result");
            assert!(state.running.is_some());
        }
        let began = Instant::now();
        probe.check(Duration::from_millis(1)).await;
        assert!(began.elapsed() < LONG / 2, "not waited for");
        // The hung check completes, and the next one begins.
        go.send(2).expect("sent");
        go.send(3).expect("sent");
        assert_eq!(probe.check(LONG).await.latest, Some(3));
    }

    #[tokio::test]
    async fn a_check_that_panics_is_repeated() {
        let count = AtomicU32::new(0);
        let probe = Probe::new("probe", move || {
            let number = count.fetch_add(1, Ordering::Relaxed);
            assert_ne!(number, 0, "the first one panics");
            number
        });
        assert_eq!(probe.check(LONG).await.latest, Some(1));
    }
}
