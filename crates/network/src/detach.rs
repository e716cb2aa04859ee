//! Detaches a pod according to its record: by now its network may be configured differently and its namespace may be
//! gone.
//!
//! ```text
//! record marked as leaving → ports unmapped, plugins' DEL in reverse → link queued for deletion
//! link deleted in the background → addresses released → record deleted
//! ```

use std::{
    path::Path,
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

use tracing::Instrument;

use crate::{
    Error, Network,
    bridge::host_link,
    cni::{Call, Chain, Element, kill_all_of},
    ledger::{Record, valid_sandbox},
    network::{Inner, lock},
};

impl Network {
    /// Detaches a pod. Succeeds for unknown pods and for pods whose namespace is gone. The ports are free when it
    /// returns. The link and its address are removed within about 50 ms in the background, while the ledger keeps the
    /// intent ([`Network::settle`] waits for it). The operation runs to completion even if the caller stops waiting.
    ///
    /// # Errors
    /// When a plugin's `DEL` fails; call again. Steps that succeeded are not reverted. A plugin whose program is missing
    /// fails for 30 s, and is skipped after that.
    pub async fn detach(&self, sandbox: &str) -> Result<(), Error> {
        valid_sandbox(sandbox)?;
        let (inner, id) = (Arc::clone(&self.inner), sandbox.to_owned());
        let work = async move { undo(&inner, &id, None).await };
        let began = Instant::now();
        let finished = tokio::spawn(work.in_current_span()).await;
        let metrics = &self.inner.metrics;
        metrics.detach_duration.observe(began.elapsed());
        if !matches!(&finished, Ok(Ok(()))) {
            metrics.detach_failed.add(1);
        }
        finished.map_err(|e| Error::kernel("detach", sandbox, std::io::Error::other(e)))?
    }

    /// Runs the plugins' `CHECK` (CNI 0.4.0 and later) on an attachment.
    ///
    /// # Errors
    /// [`Error::Plugin`] with the problem that a plugin reports.
    pub async fn check(&self, sandbox: &str) -> Result<(), Error> {
        valid_sandbox(sandbox)?;
        let Some(record) = offload::in_place(|| self.inner.ledger.get(sandbox))?.and_then(|entry| entry.record) else {
            return Ok(());
        };
        let chain = self.inner.chain_of(record.list.as_ref())?;
        if chain.disable_check || !chain.is_at_least("0.4.0") {
            return Ok(());
        }
        let call = call(&record, Some(&record.ns_path));
        for plugin in chain.plugins() {
            self.inner.programs.call("CHECK", &chain, plugin, call, record.result.as_ref()).await?;
        }
        Ok(())
    }
}

fn call<'a>(record: &'a Record, ns_path: Option<&'a Path>) -> Call<'a> {
    Call {
        pod: &record.pod,
        ns_path,
        interface: &record.interface,
        ports: &record.all_ports,
        in_process: record.in_process,
    }
}

/// Undoes an attachment after acquiring the sandbox's lock.
pub(crate) async fn undo(inner: &Arc<Inner>, sandbox: &str, partial: Option<&Record>) -> Result<(), Error> {
    let _lock = inner.locks.acquire(sandbox).await;
    undo_locked(inner, sandbox, partial).await
}

/// Undoes a complete or partial attachment. The caller holds the sandbox's lock. `partial` is the state of a failed
/// attachment, which is more recent than its record.
pub(crate) async fn undo_locked(inner: &Arc<Inner>, sandbox: &str, partial: Option<&Record>) -> Result<(), Error> {
    let undone = undo_once(inner, sandbox, partial).await;
    if undone.is_err() {
        inner.unfinished.store(true, Ordering::Relaxed);
    }
    undone
}

async fn undo_once(inner: &Arc<Inner>, sandbox: &str, partial: Option<&Record>) -> Result<(), Error> {
    let entry = offload::in_place(|| {
        let entry = inner.ledger.get(sandbox)?;
        if entry.is_some() {
            inner.ledger.mark_leaving(sandbox)?;
        }
        // The entry is in the ledger from here on, so the reconciler can retry what fails below.
        lock(&inner.session).remove(sandbox);
        // Ports are unmapped first, so that no packet reaches an address that another pod may get.
        inner.firewall.remove_ports(sandbox)?;
        Ok::<_, Error>(entry)
    })?;
    let known = partial.cloned().or_else(|| entry.as_ref().and_then(|entry| entry.record.clone()));
    let chain = match &known {
        Some(record) => inner.chain_of(record.list.as_ref())?,
        // Never attached, or the record is unreadable: remove whatever the built-in network may have created.
        None => Arc::clone(&inner.built_in),
    };
    if let Some(record) = &known {
        if record.result.is_none() && chain.plugins().next().is_some() {
            // A killed daemon may have left its plugin running. What that plugin creates after its DEL would leak.
            let id = sandbox.to_owned();
            let _ = offload::blocking(move || kill_all_of(&id)).await;
        }
        delete(inner, &chain, record).await?;
    }
    if entry.is_some() || known.as_ref().is_some_and(|record| !record.addresses.is_empty()) {
        delete_link(inner, &chain, sandbox);
    }
    Ok(())
}

/// Runs `DEL` of the plugins in reverse order.
async fn delete(inner: &Arc<Inner>, chain: &Chain, record: &Record) -> Result<(), Error> {
    let exists = offload::in_place(|| record.ns_path.try_exists());
    let exists = exists.map_err(|e| Error::path("look for", &record.ns_path, e));
    let ns_path = exists?.then_some(record.ns_path.as_path());
    // CNI versions before 0.4.0 do not pass the result to DEL.
    let previous = record.result.as_ref().filter(|_| chain.is_at_least("0.4.0"));
    for plugin in chain.plugins().collect::<Vec<_>>().into_iter().rev() {
        match inner.programs.call("DEL", chain, plugin, call(record, ns_path), previous).await {
            Ok(_) => {}
            Err(error @ Error::PluginMissing { .. }) if inner.skips_missing(&record.pod.sandbox) => {
                tracing::warn!(
                    sandbox = record.pod.sandbox,
                    plugin = plugin.kind,
                    %error,
                    "a pod is detached without a plugin; addresses and rules that the plugin keeps on the node may be left over"
                );
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

impl Inner {
    /// Whether plugins whose programs are missing are skipped in the detachment of a pod. Until then it fails, because
    /// the program may be in the middle of an upgrade.
    fn skips_missing(&self, sandbox: &str) -> bool {
        let is_expired = || self.ledger.leaving_for(sandbox).is_none_or(|time| time >= self.programs.limits.missing);
        self.skips_missing.load(Ordering::Relaxed) || offload::in_place(is_expired)
    }
}

/// Deletes the link in the background, then runs the steps that must wait for its deletion.
fn delete_link(inner: &Arc<Inner>, chain: &Arc<Chain>, sandbox: &str) {
    let (shared, chain, sandbox) = (Arc::clone(inner), Arc::clone(chain), sandbox.to_owned());
    if !chain.elements.iter().any(|element| matches!(element, Element::Bridge(_))) {
        return report(&shared, &sandbox, offload::in_place(|| finish(&shared, &chain, &sandbox)));
    }
    let link = host_link(&sandbox);
    // The queue belongs to `Inner`: a strong reference in a queued callback would keep both alive forever.
    let weak = Arc::downgrade(&shared);
    drop(shared);
    inner.removal.push(link, move |gone| {
        if let Some(inner) = weak.upgrade() {
            report(&inner, &sandbox, gone.and_then(|()| finish(&inner, &chain, &sandbox)));
        }
    });
}

fn finish(inner: &Inner, chain: &Chain, sandbox: &str) -> Result<(), Error> {
    if let Some(leases) = inner.leases(chain)? {
        let addresses = inner.ledger.get(sandbox)?.and_then(|entry| entry.record).map(|record| record.addresses);
        match addresses.filter(|addresses| !addresses.is_empty()) {
            Some(addresses) => leases.release(&addresses, sandbox)?,
            None => leases.release_unless(|owner| owner != sandbox)?,
        }
    }
    inner.programs.progress.forget(sandbox);
    inner.ledger.remove(sandbox)
}

/// Logs an error: no caller waits for this outcome, and the reconciler tries again.
fn report(inner: &Inner, sandbox: &str, outcome: Result<(), Error>) {
    if let Err(error) = outcome {
        inner.unfinished.store(true, Ordering::Relaxed);
        tracing::warn!(sandbox, %error, "removal of a pod's network is incomplete; retrying");
    }
}
