//! Detaches a pod according to its records: by now its networks may be configured differently and its namespace may be
//! gone.
//!
//! ```text
//! record marked as leaving → ports unmapped, plugins' DEL in reverse → link queued for deletion
//! link deleted in the background → addresses released → record deleted
//! ```
//! Each attachment of the pod is undone on its own, the last one first. A failure stops neither the other attachments
//! nor the other plugins of the same one; a plugin whose `DEL` succeeded is not run again. The address of the built-in
//! bridge is released only after all plugins have succeeded, because their rules may refer to it.

use std::{
    path::Path,
    sync::{Arc, atomic::Ordering},
};

use crate::{
    Error,
    attachment_key::AttachmentKey,
    bridge::host_link,
    cni::{Call, Chain, Element, Plugin, kill_all_of},
    ledger::Record,
    network::{Inner, lock},
};

/// Returns the pod and the parameters of an attachment's plugin calls.
pub(crate) fn call<'a>(record: &'a Record, ns_path: Option<&'a Path>) -> Call<'a> {
    Call {
        pod: &record.pod,
        ns_path,
        interface: &record.interface,
        ports: &record.all_ports,
        selection: record.selection.as_ref(),
        in_process: record.in_process,
        namespace: None,
    }
}

/// Undoes attachments of one sandbox after acquiring its lock, except those that were made (again) in the meantime.
pub(crate) async fn undo(inner: &Arc<Inner>, keys: &[AttachmentKey]) -> Result<(), Error> {
    let Some(first) = keys.first() else { return Ok(()) };
    let _lock = inner.locks.acquire(first.sandbox()).await;
    let is_left = |key: &&AttachmentKey| !lock(&inner.session).contains(*key) && !inner.deferred.contains(key);
    let keys: Vec<AttachmentKey> = keys.iter().filter(is_left).cloned().collect();
    undo_all(inner, &keys).await
}

pub(crate) async fn undo_all(inner: &Arc<Inner>, keys: &[AttachmentKey]) -> Result<(), Error> {
    let mut failures = Vec::new();
    for key in keys {
        failures.extend(undo_locked(inner, key, None).await.err());
    }
    Error::join(failures)
}

/// Undoes a complete or partial attachment. The caller holds the sandbox's lock. `partial` is the state of a failed
/// attachment, which is more recent than its record.
pub(crate) async fn undo_locked(
    inner: &Arc<Inner>,
    key: &AttachmentKey,
    partial: Option<&Record>,
) -> Result<(), Error> {
    let undone = undo_once(inner, key, partial).await;
    if undone.is_err() {
        inner.unfinished.store(true, Ordering::Relaxed);
    }
    undone
}

async fn undo_once(inner: &Arc<Inner>, key: &AttachmentKey, partial: Option<&Record>) -> Result<(), Error> {
    let leaving = offload::in_place(|| begin(inner, key, partial))?;
    complete(inner, leaving).await
}

/// An attachment that is marked as leaving.
pub(crate) struct Leaving {
    pub(crate) key: AttachmentKey,
    chain: Arc<Chain>,
    record: Option<Record>,
    is_on_record: bool,
    /// Its namespace, if the path may be removed before it is detached.
    namespace: Option<netns::Namespace>,
}

impl Leaving {
    /// Has the plugins use this namespace instead of the one at the recorded path.
    pub(crate) fn with_namespace(self, namespace: netns::Namespace) -> Self {
        Self { namespace: Some(namespace), ..self }
    }
}

/// Marks an attachment as leaving, and releases its names and the ports that our firewall maps.
pub(crate) fn begin(inner: &Inner, key: &AttachmentKey, partial: Option<&Record>) -> Result<Leaving, Error> {
    let entry = inner.ledger.get(key)?;
    let is_on_record = entry.is_some();
    if is_on_record {
        inner.ledger.mark_leaving(key)?;
    }
    // The entry is in the ledger from here on, so the reconciler can retry what fails below.
    lock(&inner.session).remove(key);
    inner.names.detach(key);
    let record = partial.cloned().or_else(|| entry.and_then(|entry| entry.record));
    let chain = match &record {
        Some(record) => inner.chain_of(record.list.as_ref())?,
        // Never attached, or the record is unreadable: remove whatever the built-in network may have created.
        None => Arc::clone(&inner.built_in),
    };
    if !chain.has_portmap_plugin() {
        // Ports are unmapped first, so that no packet reaches an address that another pod may get.
        inner.firewall.remove_ports(key.as_str())?;
    }
    Ok(Leaving { key: key.clone(), chain, record, is_on_record, namespace: None })
}

/// Undoes an attachment that is marked as leaving.
pub(crate) async fn complete(inner: &Arc<Inner>, leaving: Leaving) -> Result<(), Error> {
    let Leaving { key, chain, record, is_on_record, namespace } = leaving;
    let has_addresses = record.as_ref().is_some_and(|record| !record.addresses.is_empty());
    if let Some(record) = record {
        if record.result.is_none() && chain.plugins().next().is_some() {
            // A killed daemon may have left its plugin running. What that plugin creates after its DEL would leak.
            let id = key.sandbox().to_owned();
            let _ = offload::blocking(move || kill_all_of(&id)).await;
        }
        delete(inner, &chain, record, is_on_record, namespace.as_ref()).await?;
    }
    if is_on_record || has_addresses {
        delete_link(inner, &chain, &key);
        return Ok(());
    }
    offload::in_place(|| inner.firewall.remove_ports(key.as_str()))
}

/// Runs `DEL` of the plugins in reverse order. If some of them fail, the record remembers those that succeeded.
async fn delete(
    inner: &Arc<Inner>,
    chain: &Chain,
    mut record: Record,
    is_on_record: bool,
    namespace: Option<&netns::Namespace>,
) -> Result<(), Error> {
    let _no_collection = inner.activity.enter(chain).await;
    let exists = offload::in_place(|| record.ns_path.try_exists());
    let exists = exists.map_err(|e| Error::path("look for", &record.ns_path, e));
    let ns_path = exists?.then_some(record.ns_path.clone());
    let (mut failures, mut deleted) = (Vec::new(), record.deleted.clone());
    let plugins = chain.plugins().enumerate().filter(|(position, _)| !record.deleted.contains(position));
    for (position, plugin) in plugins.collect::<Vec<_>>().into_iter().rev() {
        let call = Call { namespace, ..call(&record, ns_path.as_deref()) };
        match delete_one(inner, chain, plugin, (&record, call)).await {
            Ok(()) => drop(deleted.insert(position)),
            Err(error) => failures.push(error),
        }
    }
    if !failures.is_empty() && is_on_record && deleted != record.deleted {
        record.deleted = deleted;
        failures.extend(inner.ledger.write_leaving(&record).err());
    }
    Error::join(failures)
}

async fn delete_one(
    inner: &Arc<Inner>,
    chain: &Chain,
    plugin: &Plugin,
    (record, call): (&Record, Call<'_>),
) -> Result<(), Error> {
    // CNI versions before 0.4.0 do not pass the result to DEL.
    let previous = record.result.as_ref().filter(|_| chain.is_at_least("0.4.0"));
    match inner.programs.call("DEL", chain, plugin, call, previous).await {
        Ok(_) => Ok(()),
        Err(error) if error.is_of_missing_program() && inner.skips_missing(&record.key()) => {
            tracing::warn!(
                sandbox = record.pod.sandbox,
                interface = record.interface,
                plugin = plugin.kind,
                %error,
                "a pod is detached without a plugin; addresses and rules that the plugin keeps on the node may be left over"
            );
            Ok(())
        }
        Err(error) => Err(error),
    }
}

impl Inner {
    /// Whether plugins whose programs are missing, or too old, are skipped when an attachment is undone. Until then it fails, because
    /// the program may be in the middle of an upgrade.
    fn skips_missing(&self, key: &AttachmentKey) -> bool {
        let is_expired = || self.ledger.leaving_for(key).is_none_or(|time| time >= self.programs.limits.missing);
        self.skips_missing.load(Ordering::Relaxed) || offload::in_place(is_expired)
    }
}

/// Deletes the link in the background, then runs the steps that must wait for its deletion.
fn delete_link(inner: &Arc<Inner>, chain: &Arc<Chain>, key: &AttachmentKey) {
    let (shared, chain, key) = (Arc::clone(inner), Arc::clone(chain), key.clone());
    if !chain.elements.iter().any(|element| matches!(element, Element::Bridge(_))) {
        return report(&shared, &key, offload::in_place(|| finish(&shared, &chain, &key)));
    }
    let link = host_link(key.as_str());
    // The queue belongs to `Inner`: a strong reference in a queued callback would keep both alive forever.
    let weak = Arc::downgrade(&shared);
    drop(shared);
    inner.removal.push(link, move |gone| {
        if let Some(inner) = weak.upgrade() {
            report(&inner, &key, gone.and_then(|()| finish(&inner, &chain, &key)));
        }
    });
}

fn finish(inner: &Inner, chain: &Chain, key: &AttachmentKey) -> Result<(), Error> {
    if let Some(leases) = inner.leases(chain)? {
        let addresses = inner.ledger.get(key)?.and_then(|entry| entry.record).map(|record| record.addresses);
        match addresses.filter(|addresses| !addresses.is_empty()) {
            Some(addresses) => leases.release(&addresses, key.sandbox())?,
            // Another attachment of the pod may be to the same network.
            None => leases.release_unless(|owner, interface| owner != key.sandbox() || interface != key.interface())?,
        }
    }
    inner.firewall.remove_ports(key.as_str())?;
    inner.ledger.remove(key)?;
    if inner.ledger.of_sandbox(key.sandbox())?.is_empty() {
        inner.programs.progress.forget(key.sandbox());
        lock(&inner.multihomed).remove(key.sandbox());
        lock(&inner.failed_checks).remove(key.sandbox());
    }
    Ok(())
}

/// Logs an error: no caller waits for this outcome, and the reconciler tries again.
pub(crate) fn report(inner: &Inner, key: &AttachmentKey, outcome: Result<(), Error>) {
    if let Err(error) = outcome {
        inner.unfinished.store(true, Ordering::Relaxed);
        let (sandbox, interface) = (key.sandbox(), key.interface());
        tracing::warn!(sandbox, interface, %error, "removal of a pod's network is incomplete; retrying");
    }
}
