//! Connects running pods with named networks, and disconnects them.
//!
//! ```text
//! record written → attachment made → caller's record
//! caller's record → record marked as leaving → attachment undone → record deleted
//! ```
//! After a crash in between the attachment is on record here, and not in the caller's: [`Network::undo_unrecorded`] undoes it.

use std::{collections::HashSet, io, path::Path, sync::Arc};

use tracing::Instrument;

use crate::{
    Attachment, Error, Network, NetworkChoice, NetworkDefinition, PodRef,
    attach::PendingAttach,
    attach_pod::record,
    attachment_key::{AttachmentKey, valid_sandbox},
    default_route,
    deferred::CONFLICT,
    detach,
    ledger::Record,
    named::interface,
    network::{Inner, lock},
};

/// Maximum number of networks of a pod.
const NETWORKS_MAX: usize = 16;

impl Network {
    /// Attaches a running pod to a further named network, as the next free one of `eth0`, `eth1`, …; on failure
    /// everything is undone. The operation runs to completion even if the caller stops waiting.
    ///
    /// # Errors
    /// [`Error::NetworkMissing`], [`Error::Selection`] if the pod is connected already or requests what the network
    /// cannot give, [`Error::AddressTaken`], [`Error::Exhausted`], or the kernel's error.
    pub async fn connect(
        &self,
        pod: &PodRef,
        ns: &netns::Namespace,
        ns_path: &Path,
        choice: &NetworkChoice,
    ) -> Result<Attachment, Error> {
        valid_sandbox(&pod.sandbox)?;
        let (inner, ns) = (Arc::clone(&self.inner), Arc::new(ns.try_clone()?));
        let (pod, ns_path, choice) = (pod.clone(), ns_path.to_owned(), choice.clone());
        let work = async move { connect(&inner, &pod, ns, &ns_path, &choice).await };
        let finished = tokio::spawn(work.in_current_span()).await;
        finished.map_err(|e| Error::kernel("connect", "pod", io::Error::other(e)))?
    }

    /// Detaches a running pod from a named network; succeeds if it is not attached. When it returns, the interface and
    /// its addresses are gone.
    ///
    /// # Errors
    /// See [`Network::detach`].
    pub async fn disconnect(&self, sandbox: &str, definition: &NetworkDefinition) -> Result<(), Error> {
        valid_sandbox(sandbox)?;
        let (inner, sandbox, name) = (Arc::clone(&self.inner), sandbox.to_owned(), definition.list_name());
        let work = async move {
            let _lock = inner.locks.acquire(&sandbox).await;
            let records = offload::in_place(|| inner.records_of(&sandbox))?;
            let mut failures = Vec::new();
            for record in records.into_iter().filter(|record| record.network() == Some(name.as_str())) {
                failures.extend(detach::undo_locked(&inner, &record.key(), None).await.err());
            }
            Error::join(failures)
        };
        let finished = tokio::spawn(work.in_current_span()).await;
        finished.map_err(|e| Error::kernel("disconnect", "pod", io::Error::other(e)))??;
        self.inner.settle(CONFLICT).await;
        Ok(())
    }

    /// Returns the interfaces of pods that are on record, by sandbox; those that are being removed are left out.
    ///
    /// # Errors
    /// When the records cannot be listed.
    pub fn interfaces(&self) -> Result<HashSet<(String, String)>, Error> {
        let names = offload::in_place(|| self.inner.ledger.names())?;
        let staying = names.into_iter().filter(|(_, is_leaving)| !is_leaving);
        Ok(staying.map(|(key, _)| (key.sandbox().to_owned(), key.interface().to_owned())).collect())
    }

    /// Undoes an attachment to a named network that the caller's record of the pod does not have. Others stay.
    ///
    /// # Errors
    /// See [`Network::detach`].
    pub async fn undo_unrecorded(&self, sandbox: &str, interface: &str) -> Result<(), Error> {
        let (inner, key) = (Arc::clone(&self.inner), AttachmentKey::new(sandbox, interface));
        let _lock = inner.locks.acquire(sandbox).await;
        if inner.deferred.contains(&key) {
            return Ok(());
        }
        let entry = offload::in_place(|| inner.ledger.get(&key))?;
        match entry.and_then(|entry| entry.record).is_some_and(|record| record.is_named()) {
            true => detach::undo_locked(&inner, &key, None).await,
            false => Ok(()),
        }
    }

    /// Gives a pod without default routes those of the first of its named networks that has gateways to other networks.
    ///
    /// # Errors
    /// When the records cannot be read, or the kernel refuses the routes.
    pub fn ensure_default_routes(&self, sandbox: &str, ns: &netns::Namespace) -> Result<(), Error> {
        let inner = &self.inner;
        let route = || {
            let named = inner.named.list();
            for record in inner.records_of(sandbox)? {
                let is_it = |definition: &&Arc<NetworkDefinition>| record.network() == Some(&definition.list_name());
                let Some(definition) = named.iter().find(is_it).filter(|definition| !definition.internal) else {
                    continue;
                };
                let has = |ipv4: bool| record.addresses.iter().any(|ip| ip.is_ipv4() == ipv4);
                let mut gateways = inner.gateways(definition)?;
                gateways.retain(|gateway| has(gateway.is_ipv4()));
                return default_route::ensure(ns, &record.interface, &gateways);
            }
            Ok(())
        };
        offload::in_place(route)
    }
}

async fn connect(
    inner: &Arc<Inner>,
    pod: &PodRef,
    ns: Arc<netns::Namespace>,
    ns_path: &Path,
    choice: &NetworkChoice,
) -> Result<Attachment, Error> {
    let sandbox = pod.sandbox.as_str();
    inner.prepare_overlays(std::slice::from_ref(choice)).await?;
    let _lock = inner.locks.acquire(sandbox).await;
    let keys = offload::in_place(|| inner.ledger.of_sandbox(sandbox))?;
    let is_free = |position: &usize| !keys.iter().any(|(key, _)| key.interface() == interface(*position));
    let wrong = |reason: String| Error::selection(format!("network {}", choice.network), reason);
    // The first position is that of the network that the pod was created with, which is rendered with default routes.
    let position = (1..=NETWORKS_MAX).find(is_free);
    let position =
        position.ok_or_else(|| wrong(format!("the pod has {NETWORKS_MAX} networks; disconnect one first")))?;
    let (selected, _in_use) = inner.choose(choice, position)?;
    let records = offload::in_place(|| inner.records_of(sandbox))?;
    if records.iter().any(|record| record.network() == Some(&selected.0.name)) {
        return Err(wrong("the pod is connected to it already".to_owned()));
    }
    let record = record(pod, ns_path, &[], (position, &selected));
    let key = record.key();
    // The reconciler treats the attachment as living, and a restarted daemon finds it whatever step it was in.
    lock(&inner.session).insert(key.clone());
    lock(&inner.multihomed).insert(sandbox.to_owned());
    if let Err(error) = inner.ledger.write(&record) {
        lock(&inner.session).remove(&key);
        return Err(error);
    }
    let progress = Arc::clone(&inner.programs.progress);
    progress.begin_attach(sandbox);
    let mut pending = PendingAttach { inner: Arc::clone(inner), chain: selected.0, ns, record, is_begun: true };
    let attached = pending.run().await;
    let attached = match progress.end_attach(sandbox) {
        true => attached.and(Err(Error::Cancelled(sandbox.to_owned()))),
        false => attached,
    };
    match attached {
        Ok(attachment) => {
            inner.names.attach(&pending.record);
            Ok(attachment)
        }
        Err(error) => {
            // The first error is the one to return. What cannot be undone now stays on record for the reconciler.
            if let Err(undo) = detach::undo_locked(inner, &key, Some(&pending.record)).await {
                let interface = key.interface();
                tracing::warn!(sandbox, interface, error = %undo, "undo of a failed connection is incomplete; retrying");
            }
            Err(error)
        }
    }
}

impl Inner {
    /// Returns the records of a pod that are not being removed, in the order of its networks.
    fn records_of(&self, sandbox: &str) -> Result<Vec<Record>, Error> {
        let mut records = Vec::new();
        for (key, _) in self.ledger.of_sandbox(sandbox)?.into_iter().filter(|(_, is_leaving)| !is_leaving) {
            records.extend(self.ledger.get(&key)?.and_then(|entry| entry.record));
        }
        records.sort_by_key(|record| record.position);
        Ok(records)
    }
}
