//! What plugins do for which sandbox, and since when: for people, and to end an attachment that is not wanted any more.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize};
use tokio::sync::watch;

/// No more calls are kept for a sandbox; the oldest go first.
const MOST: usize = 32;

/// One call of a CNI plugin that is a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PluginCall {
    /// Its type.
    pub plugin: String,
    /// `ADD`, `DEL` or `CHECK`.
    pub command: String,
    /// Nanoseconds since the epoch.
    pub began: u64,
    /// How long it took; none while it runs.
    pub took: Option<Duration>,
    /// Why it failed; empty where it did not, or runs.
    pub failure: String,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Progress(Mutex<HashMap<String, Sandbox>>);

#[derive(Debug, Default)]
struct Sandbox {
    calls: Vec<PluginCall>,
    /// While it is being attached: whether that shall end.
    cancel: Option<watch::Sender<bool>>,
}

/// A call that runs.
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

    /// An attachment begins: it can be cancelled until [`Progress::attached`].
    pub(crate) fn attaching(&self, sandbox: &str) {
        self.lock().entry(sandbox.to_owned()).or_default().cancel = Some(watch::Sender::new(false));
    }

    /// It is over, in whatever way. Whether it was to be cancelled.
    pub(crate) fn attached(&self, sandbox: &str) -> bool {
        let cancel = self.lock().get_mut(sandbox).and_then(|of| of.cancel.take());
        cancel.is_some_and(|cancel| *cancel.borrow())
    }

    /// Has an attachment end, if one runs.
    pub(crate) fn cancel(&self, sandbox: &str) {
        if let Some(cancel) = self.lock().get(sandbox).and_then(|of| of.cancel.as_ref()) {
            cancel.send_replace(true);
        }
    }

    /// Resolves when the attachment shall end; never where none runs.
    pub(crate) async fn cancelled(&self, sandbox: &str) {
        let watch = self.lock().get(sandbox).and_then(|of| of.cancel.as_ref()).map(watch::Sender::subscribe);
        if let Some(mut watch) = watch
            && watch.wait_for(|cancelled| *cancelled).await.is_ok()
        {
            return;
        }
        std::future::pending().await
    }

    /// A call begins.
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
        if calls.len() >= MOST {
            calls.remove(0);
        }
        calls.push(call.clone());
        Running { progress: self, sandbox, call, since: Instant::now() }
    }

    /// What was called for a sandbox, the oldest first; the last one may run still.
    pub(crate) fn calls(&self, sandbox: &str) -> Vec<PluginCall> {
        self.lock().get(sandbox).map(|of| of.calls.clone()).unwrap_or_default()
    }

    /// Nobody asks any more.
    pub(crate) fn forget(&self, sandbox: &str) {
        self.lock().remove(sandbox);
    }
}

impl Running<'_> {
    /// It ended.
    pub(crate) fn end(self, failure: Option<&str>) {
        let mut all = self.progress.lock();
        let Some(of) = all.get_mut(self.sandbox) else { return };
        let same = |call: &&mut PluginCall| call.began == self.call.began && call.took.is_none();
        if let Some(call) = of.calls.iter_mut().rev().find(same) {
            call.took = Some(self.since.elapsed());
            failure.unwrap_or_default().clone_into(&mut call.failure);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_told_while_they_run_and_after() {
        let progress = Progress::default();
        let running = progress.begin("s", "bridge", "ADD");
        assert_eq!(progress.calls("s")[0].took, None);
        running.end(Some("no"));
        let call = &progress.calls("s")[0];
        assert!(call.took.is_some() && call.failure == "no");
        for _ in 0..100 {
            progress.begin("s", "bridge", "DEL").end(None);
        }
        assert_eq!(progress.calls("s").len(), MOST);
        progress.forget("s");
        assert_eq!(progress.calls("s"), vec![]);
    }

    #[tokio::test]
    async fn only_an_attachment_under_way_is_cancelled() {
        let progress = Progress::default();
        progress.cancel("s");
        progress.attaching("s");
        let patience = Duration::from_millis(1);
        assert!(tokio::time::timeout(patience, progress.cancelled("s")).await.is_err());
        progress.cancel("s");
        progress.cancelled("s").await;
        assert!(progress.attached("s"));
        assert!(!progress.attached("s"));
    }
}
