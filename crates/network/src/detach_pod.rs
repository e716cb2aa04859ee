//! Detaches a pod from all of its networks, at once or in the background.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

use netns::Namespace;
use tracing::Instrument;

use crate::{
    Error, Network,
    attachment_key::{AttachmentKey, valid_sandbox},
    cni::{self, Chain},
    deferred::Owner,
    detach::{Leaving, begin, complete, report, undo_all},
    network::Inner,
};

impl Network {
    /// Detaches a pod from all of its networks. Succeeds for unknown pods and for pods whose namespace is gone. Ports are
    /// free when it returns, or when the attachment that needs them has waited for it. The link and its address are removed
    /// within about 50 ms in the background, while the ledger keeps the intent ([`Network::settle`] waits for it); so is
    /// everything of networks whose plugins run in this process, if what they made can wait. The operation runs to
    /// completion even if the caller stops waiting.
    ///
    /// # Errors
    /// When a plugin's `DEL` fails; call again. If it fails in the background, it is logged and counted, and the reconciler
    /// tries again. Steps that succeeded are not reverted. A plugin whose program is missing
    /// fails for 30 s, and is skipped after that.
    pub async fn detach(&self, sandbox: &str) -> Result<(), Error> {
        valid_sandbox(sandbox)?;
        let (inner, id) = (Arc::clone(&self.inner), sandbox.to_owned());
        inner.programs.progress.cancel_check(sandbox);
        self.stop_names(sandbox);
        let work = async move {
            // Under the lock: an attachment that is being made is one of them.
            let _lock = inner.locks.acquire(&id).await;
            let mut keys = offload::in_place(|| keys_in_reverse(&inner, &id))?;
            keys.retain(|key| !inner.deferred.contains(key));
            if keys.is_empty() || offload::in_place(|| undo_later(&inner, &keys))? {
                return Ok(());
            }
            undo_all(&inner, &keys).await
        };
        let began = Instant::now();
        let finished = tokio::spawn(work.in_current_span()).await;
        let metrics = &self.inner.metrics;
        metrics.detach_duration.observe(began.elapsed());
        if !matches!(&finished, Ok(Ok(()))) {
            metrics.detach_failed.add(1);
        }
        finished.map_err(|e| Error::kernel("detach", sandbox, std::io::Error::other(e)))?
    }
}

/// Returns the attachments of a sandbox in the reverse order of their creation. The primary one is always among them:
/// an unknown sandbox is cleaned up, too.
fn keys_in_reverse(inner: &Inner, sandbox: &str) -> Result<Vec<AttachmentKey>, Error> {
    let mut keys = Vec::new();
    for (key, _) in inner.ledger.of_sandbox(sandbox)?.into_iter().filter(|(key, _)| !key.is_primary()) {
        let record = inner.ledger.get(&key)?.and_then(|entry| entry.record);
        keys.push((record.map_or(usize::MAX, |record| record.position), key));
    }
    keys.push((0, AttachmentKey::primary(sandbox)));
    keys.sort();
    Ok(keys.into_iter().rev().map(|(_, key)| key).collect())
}

/// Begins to undo attachments of one sandbox and leaves the rest to the background. Returns false, and has done nothing,
/// if one of them may need a program or is not complete, or if too many pods are waiting. The caller holds the sandbox's
/// lock.
fn undo_later(inner: &Arc<Inner>, keys: &[AttachmentKey]) -> Result<bool, Error> {
    let Some(place) = inner.deferred.place() else { return Ok(false) };
    let Some(namespace) = namespace_of(inner, keys)? else { return Ok(false) };
    // Before the records are marked as leaving, so that the reconciler does not undo them, too.
    let pending = inner.deferred.begin(Owner::Job, keys);
    let begun = keys.iter().map(|key| begin(inner, key, None)).collect::<Result<Vec<_>, _>>();
    let leaving = begun.inspect_err(|_| inner.unfinished.store(true, Ordering::Relaxed))?;
    let (shared, watching) = (Arc::clone(inner), Arc::clone(inner));
    let job = async move {
        // Dropped in reverse: the namespace is closed, and the network is not in use any longer, when a caller that waits
        // for the job continues.
        let (_pending, _place, inner, namespace) = (pending, place, shared, namespace);
        let undo_each = async {
            let mut has_failed = false;
            for leaving in leaving {
                has_failed |= !undo(&inner, leaving, &namespace).await;
            }
            has_failed
        };
        inner.deferred.in_turn(undo_each).await
    };
    let job = tokio::spawn(job.in_current_span());
    tokio::spawn(async move {
        // Noted when the attachments are not pending any longer: before, the reconciler would not undo them.
        if job.await.unwrap_or(true) {
            watching.unfinished.store(true, Ordering::Relaxed);
            watching.metrics.detach_failed.add(1);
        }
    });
    Ok(true)
}

/// Undoes one attachment; returns false if that failed.
async fn undo(inner: &Arc<Inner>, leaving: Leaving, namespace: &Namespace) -> bool {
    let key = leaving.key.clone();
    let outcome = match namespace.try_clone() {
        Ok(namespace) => complete(inner, leaving.with_namespace(namespace)).await,
        Err(error) => Err(error.into()),
    };
    let has_succeeded = outcome.is_ok();
    report(inner, &key, outcome);
    has_succeeded
}

/// Returns the namespace of a pod that can be detached in the background; `None` for every other one, and for pods without
/// plugins, whose detachment is short.
fn namespace_of(inner: &Inner, keys: &[AttachmentKey]) -> Result<Option<Namespace>, Error> {
    let (mut path, mut has_plugins) = (None, false);
    for key in keys {
        let Some(record) = inner.ledger.get(key)?.and_then(|entry| entry.record) else { return Ok(None) };
        let chain = inner.chain_of(record.list.as_ref())?;
        let is_complete = record.result.is_some() || chain.plugins().next().is_none();
        if !record.in_process || !is_complete || !is_deferrable(&chain) || inner.ledger.leaving_for(key).is_some() {
            return Ok(None);
        }
        has_plugins |= chain.plugins().next().is_some();
        path = Some(record.ns_path);
    }
    // A namespace that is gone has no link that takes time to delete.
    Ok(path.filter(|_| has_plugins).and_then(|path| Namespace::open(&path).ok()))
}

fn is_deferrable(chain: &Chain) -> bool {
    chain.plugins().all(|plugin| cni::is_deferrable(&plugin.kind, &plugin.config))
}
