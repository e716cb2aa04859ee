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
    /// `disableCheck`. Waits for operations of the same pod. [`Network::failed_check`] reports the outcome afterwards.
    ///
    /// # Errors
    /// The problems that plugins report: at most one for each attachment.
    pub async fn check(&self, sandbox: &str) -> Result<(), Error> {
        valid_sandbox(sandbox)?;
        let inner = &self.inner;
        let _lock = inner.locks.acquire(sandbox).await;
        let mut failures = Vec::new();
        for (key, is_leaving) in offload::in_place(|| inner.ledger.of_sandbox(sandbox))? {
            let entry = offload::in_place(|| inner.ledger.get(&key))?;
            if let Some(record) = entry.and_then(|entry| entry.record).filter(|_| !is_leaving) {
                failures.extend(check_one(inner, &record).await.err());
            }
        }
        let outcome = Error::join(failures);
        let mut failed_checks = lock(&inner.failed_checks);
        match &outcome {
            Ok(()) => drop(failed_checks.remove(sandbox)),
            Err(error) => drop(failed_checks.insert(sandbox.to_owned(), error.to_string())),
        }
        outcome
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
