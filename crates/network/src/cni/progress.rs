//! Plugin calls by sandbox, for status output and to cancel an attachment in progress.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize};
use tokio::sync::watch;

/// How many calls are kept for a sandbox; the oldest are dropped first.
const CALLS_MAX: usize = 32;

/// One call of a CNI plugin program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PluginCall {
    /// Plugin type.
    pub plugin: String,
    /// `ADD`, `DEL` or `CHECK`.
    pub command: String,
    /// Start time in nanoseconds since the epoch.
    pub began: u64,
    /// Duration; `None` while the call is running.
    pub took: Option<Duration>,
    /// Why the call failed; empty if it succeeded or is running.
    pub failure: String,
}

/// The calls of all sandboxes.
#[derive(Debug, Default)]
pub(crate) struct Progress(Mutex<HashMap<String, Sandbox>>);

#[derive(Debug, Default)]
struct Sandbox {
    calls: Vec<PluginCall>,
    /// Set while an attachment or a check is in progress; true when it has been cancelled.
    cancel: Option<watch::Sender<bool>>,
    is_check: bool,
}

/// A running call.
pub(crate) struct Running<'a> {
    progress: &'a Progress,
    sandbox: &'a str,
    call: PluginCall,
    since: Instant,
}

impl Progress {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Sandbox>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks the start of an attachment, which can be cancelled until [`Progress::end_attach`].
    pub(crate) fn begin_attach(&self, sandbox: &str) {
        self.begin_cancellable(sandbox, false);
    }

    /// Marks the start of a check, which ends with [`Progress::end_attach`], too.
    pub(crate) fn begin_check(&self, sandbox: &str) {
        self.begin_cancellable(sandbox, true);
    }

    fn begin_cancellable(&self, sandbox: &str, is_check: bool) {
        let mut all = self.lock();
        let entry = all.entry(sandbox.to_owned()).or_default();
        (entry.cancel, entry.is_check) = (Some(watch::Sender::new(false)), is_check);
    }

    /// Marks the end of an attachment. Reports whether it was cancelled.
    pub(crate) fn end_attach(&self, sandbox: &str) -> bool {
        let cancel = self.lock().get_mut(sandbox).and_then(|entry| entry.cancel.take());
        cancel.is_some_and(|cancel| *cancel.borrow())
    }

    /// Cancels an attachment if one is in progress.
    pub(crate) fn cancel(&self, sandbox: &str) {
        if let Some(cancel) = self.lock().get(sandbox).and_then(|entry| entry.cancel.as_ref()) {
            cancel.send_replace(true);
        }
    }

    /// Cancels a check if one is in progress.
    pub(crate) fn cancel_check(&self, sandbox: &str) {
        if let Some(cancel) = self.lock().get(sandbox).filter(|entry| entry.is_check).and_then(|e| e.cancel.as_ref()) {
            cancel.send_replace(true);
        }
    }

    /// Resolves when the attachment is cancelled; never if no attachment is in progress.
    pub(crate) async fn cancelled(&self, sandbox: &str) {
        let watch = self.lock().get(sandbox).and_then(|entry| entry.cancel.as_ref()).map(watch::Sender::subscribe);
        if let Some(mut watch) = watch
            && watch.wait_for(|cancelled| *cancelled).await.is_ok()
        {
            return;
        }
        std::future::pending().await
    }

    /// Records the start of a call.
    pub(crate) fn begin<'a>(&'a self, sandbox: &'a str, plugin: &str, command: &str) -> Running<'a> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let call = PluginCall {
            plugin: plugin.to_owned(),
            command: command.to_owned(),
            began: u64::try_from(now.as_nanos()).unwrap_or(u64::MAX),
            took: None,
            failure: String::new(),
        };
        let mut all = self.lock();
        let calls = &mut all.entry(sandbox.to_owned()).or_default().calls;
        if calls.len() >= CALLS_MAX {
            calls.remove(0);
        }
        calls.push(call.clone());
        Running { progress: self, sandbox, call, since: Instant::now() }
    }

    /// Returns the calls for a sandbox, the oldest first; the last one may still be running.
    pub(crate) fn calls(&self, sandbox: &str) -> Vec<PluginCall> {
        self.lock().get(sandbox).map(|entry| entry.calls.clone()).unwrap_or_default()
    }

    /// Drops the calls of a sandbox.
    pub(crate) fn forget(&self, sandbox: &str) {
        self.lock().remove(sandbox);
    }
}

impl Running<'_> {
    /// Records the end of the call, with its error text if it failed.
    pub(crate) fn end(self, failure: Option<&str>) {
        let mut all = self.progress.lock();
        let Some(entry) = all.get_mut(self.sandbox) else { return };
        let same = |call: &&mut PluginCall| call.began == self.call.began && call.took.is_none();
        if let Some(call) = entry.calls.iter_mut().rev().find(same) {
            call.took = Some(self.since.elapsed());
            failure.unwrap_or_default().clone_into(&mut call.failure);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_reported_while_they_run_and_after() {
        let progress = Progress::default();
        let running = progress.begin("s", "bridge", "ADD");
        assert_eq!(progress.calls("s")[0].took, None);
        running.end(Some("no"));
        let call = &progress.calls("s")[0];
        assert!(call.took.is_some() && call.failure == "no");
        for _ in 0..100 {
            progress.begin("s", "bridge", "DEL").end(None);
        }
        assert_eq!(progress.calls("s").len(), CALLS_MAX);
        progress.forget("s");
        assert_eq!(progress.calls("s"), vec![]);
    }

    #[tokio::test]
    async fn only_an_attachment_in_progress_is_cancelled() {
        let progress = Progress::default();
        progress.cancel("s");
        progress.begin_attach("s");
        let patience = Duration::from_millis(1);
        assert!(tokio::time::timeout(patience, progress.cancelled("s")).await.is_err());
        progress.cancel("s");
        progress.cancelled("s").await;
        assert!(progress.end_attach("s"));
        assert!(!progress.end_attach("s"));
        progress.begin_attach("s");
        progress.cancel_check("s");
        assert!(!progress.end_attach("s"), "an attachment is not a check");
        progress.begin_check("s");
        progress.cancel_check("s");
        progress.cancelled("s").await;
        assert!(progress.end_attach("s"));
    }
}
