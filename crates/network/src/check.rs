//! `CHECK`: asks the plugins of a pod's networks whether its attachments are still as they were made.

use std::sync::Arc;

use crate::{
    Error, Network,
    attachment_key::valid_sandbox,
    detach::call,
    ledger::Record,
    network::{Inner, lock},
};

impl Network {
    /// Runs the plugins' `CHECK` (CNI 0.4.0 and later) on all attachments of a pod, unless the network has
    /// `disableCheck`. Waits for operations of the same pod. [`Network::detach`] cancels it, and then it succeeds. [`Network::failed_check`] reports the outcome afterwards.
    ///
    /// # Errors
    /// The problems that plugins report: at most one for each attachment.
    pub async fn check(&self, sandbox: &str) -> Result<(), Error> {
        valid_sandbox(sandbox)?;
        let inner = &self.inner;
        let _lock = inner.locks.acquire(sandbox).await;
        let outcome = self.check_locked(sandbox).await;
        let mut failed_checks = lock(&inner.failed_checks);
        match &outcome {
            Ok(()) => drop(failed_checks.remove(sandbox)),
            Err(error) => drop(failed_checks.insert(sandbox.to_owned(), error.to_string())),
        }
        outcome
    }

    async fn check_locked(&self, sandbox: &str) -> Result<(), Error> {
        let inner = &self.inner;
        let attachments = offload::in_place(|| inner.ledger.of_sandbox(sandbox))?;
        if attachments.is_empty() {
            return Ok(());
        }
        inner.programs.progress.begin_check(sandbox);
        let mut failures = Vec::new();
        for (key, is_leaving) in attachments {
            match offload::in_place(|| inner.ledger.get(&key)) {
                Ok(entry) => {
                    if let Some(record) = entry.and_then(|entry| entry.record).filter(|_| !is_leaving) {
                        failures.extend(check_one(inner, &record).await.err());
                    }
                }
                Err(error) => failures.push(error),
            }
        }
        // The pod is being removed: a plugin that was killed for that has no finding.
        if inner.programs.progress.end_attach(sandbox) {
            failures.clear();
        }
        Error::join(failures)
    }

    /// Returns the outcome of the last [`Network::check`] of a pod if it failed.
    #[must_use]
    pub fn failed_check(&self, sandbox: &str) -> Option<String> {
        lock(&self.inner.failed_checks).get(sandbox).cloned()
    }
}

async fn check_one(inner: &Arc<Inner>, record: &Record) -> Result<(), Error> {
    let chain = inner.chain_of(record.list.as_ref())?;
    // An attachment without a result is not complete.
    if chain.disable_check || !chain.is_at_least("0.4.0") || record.result.is_none() {
        return Ok(());
    }
    let call = call(record, Some(&record.ns_path));
    for plugin in chain.plugins() {
        inner.programs.call("CHECK", &chain, plugin, call, record.result.as_ref()).await?;
    }
    Ok(())
}
