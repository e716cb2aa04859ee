//! Compares the ledger, the kernel and the living sandboxes, and removes what has no owner.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    fs,
    sync::{Arc, atomic::Ordering},
};

use futures_util::{StreamExt, stream};

use crate::{
    Error, Network,
    attachment_key::AttachmentKey,
    bridge::{self, host_link, is_host_link},
    cni::Chain,
    deferred::Owner,
    detach::undo,
    ipam::Leases,
    network::{Inner, lock},
};

/// How many attachments are undone at the same time, so that one slow plugin does not delay the others.
const AT_ONCE: usize = 8;

impl Network {
    /// Removes attachments, links, addresses and ports of sandboxes that are not living. Sandboxes that were attached
    /// since [`Network::open`] count as living even if `living` does not contain them. Restores our nftables tables if
    /// other programs changed them. Call it at start and on a timer; it also runs the plugins' `STATUS`, whose outcome
    /// [`Network::ready`] reports.
    ///
    /// # Errors
    /// The first failure, after all steps were tried.
    pub async fn reconcile(&self, living: &HashSet<String>) -> Result<(), Error> {
        let inner = &self.inner;
        inner.unfinished.store(false, Ordering::Relaxed);
        let mut first = Ok(());
        let mut record = |outcome: Result<(), Error>| {
            if first.is_ok() {
                first = outcome;
            }
        };
        let names = inner.ledger.names().inspect_err(|_| inner.unfinished.store(true, Ordering::Relaxed))?;
        let mut leftovers: BTreeMap<String, Vec<AttachmentKey>> = BTreeMap::new();
        for (key, is_leaving) in names {
            // A sandbox in the session was attached (again) after the ledger was read.
            let again = lock(&inner.session).contains(&key);
            // A locked sandbox is already being undone by its caller; do not wait here for that caller's plugin.
            let is_pending = inner.deferred.contains(&key);
            if !again
                && !is_pending
                && !inner.locks.is_locked(key.sandbox())
                && (is_leaving || !living.contains(key.sandbox()))
            {
                leftovers.entry(key.sandbox().to_owned()).or_default().push(key);
            }
        }
        // The key of the primary attachment is the first one, and that attachment is undone last.
        leftovers.values_mut().for_each(|keys| keys.sort_by(|a, b| b.cmp(a)));
        let undone = stream::iter(leftovers.into_values()).map(|keys| async move {
            // An attachment that needs what they have waits for it.
            let _pending = inner.deferred.begin(Owner::Reconciler, &keys);
            undo(inner, &keys).await
        });
        undone.buffer_unordered(AT_ONCE).collect::<Vec<_>>().await.into_iter().for_each(&mut record);
        inner.settle_links().await;
        let (shared, alive) = (Arc::clone(inner), living.clone());
        let swept = offload::blocking(move || shared.sweep(&alive)).await;
        record(swept.unwrap_or_else(|e| Err(Error::kernel("reconcile", "network", std::io::Error::other(e)))));
        inner.settle_links().await;
        inner.query_plugins().await;
        record(inner.collect_garbage().await);
        first
    }

    /// Reports whether undoing an attachment has failed since the last [`Network::reconcile`] began. Calling it again
    /// may succeed now.
    pub fn is_unfinished(&self) -> bool {
        self.inner.unfinished.load(Ordering::Relaxed)
    }

    /// Removes the bridges of the built-in network and of named ones, and our nftables tables, and turns forwarding off if we turned it on. For tests and
    /// uninstallation.
    ///
    /// # Errors
    /// While a pod is attached; otherwise the kernel's error.
    pub async fn teardown(&self) -> Result<(), Error> {
        self.settle().await;
        self.undo_leaving().await?;
        let attached = self.inner.ledger.all()?.len();
        if attached > 0 {
            return Err(Error::config("network", format!("{attached} pods are attached; remove them first")));
        }
        let inner = Arc::clone(&self.inner);
        let work = move || {
            if let Some(options) = inner.built_in.bridge() {
                inner.bridges.delete(&options.bridge)?;
            }
            for bridge in inner.named.list().iter().filter_map(|definition| definition.bridge()) {
                inner.bridges.delete(&bridge)?;
            }
            inner.firewall.delete()?;
            bridge::restore_forwarding(&inner.state)
        };
        let done = offload::blocking(work).await;
        done.map_err(|e| Error::kernel("remove", "network", std::io::Error::other(e)))?
    }
}

impl Network {
    /// Undoes what is left of attachments whose removal has failed before.
    async fn undo_leaving(&self) -> Result<(), Error> {
        let mut failures = Vec::new();
        for (key, _) in self.inner.ledger.names()?.into_iter().filter(|(_, is_leaving)| *is_leaving) {
            failures.extend(undo(&self.inner, &[key]).await.err());
        }
        self.inner.settle_links().await;
        Error::join(failures)
    }
}

impl Inner {
    fn lives(&self, living: &HashSet<String>, sandbox: &str) -> bool {
        living.contains(sandbox) || lock(&self.session).contains(&AttachmentKey::primary(sandbox))
    }

    fn sweep(&self, living: &HashSet<String>) -> Result<(), Error> {
        for owner in self.firewall.sandboxes() {
            let key = AttachmentKey::parse(&owner)?;
            // A plugin may still map the ports of an attachment whose `DEL` has failed.
            if !self.lives(living, key.sandbox()) && self.ledger.get(&key)?.is_none() {
                self.firewall.remove_ports(&owner)?;
            }
        }
        self.sweep_links(living)?;
        let directory = self.leases_directory();
        let entries = fs::read_dir(&directory).map(|entries| entries.flatten().collect::<Vec<_>>()).unwrap_or_default();
        for entry in entries.into_iter().filter(|entry| entry.path().is_dir()) {
            Leases::open(&entry.file_name().to_string_lossy(), &entry.path())?.release_unless(|owner, _| {
                self.lives(living, owner) || !self.ledger.of_sandbox(owner).is_ok_and(|all| all.is_empty())
            })?;
        }
        self.firewall.verify()
    }

    /// Deletes links on our bridges that have a name of ours but no living sandbox.
    fn sweep_links(&self, living: &HashSet<String>) -> Result<(), Error> {
        let chain = self.chain().ok();
        let named: Vec<String> = self.named.list().iter().filter_map(|definition| definition.bridge()).collect();
        let bridges: BTreeSet<&str> = [Some(&self.built_in), chain.as_ref()]
            .into_iter()
            .flatten()
            .filter_map(|chain: &Arc<Chain>| chain.bridge())
            .map(|options| options.bridge.as_str())
            .chain(named.iter().map(String::as_str))
            .collect();
        let links = self.bridges.with_socket(rtnl::links).map_err(|e| Error::kernel("list", "links", e))?;
        let masters: HashSet<u32> =
            links.iter().filter(|l| bridges.contains(l.name.as_str())).map(|l| l.index).collect();
        // Read after the links, so that they contain a pod that was attached in between.
        let session: Vec<AttachmentKey> = lock(&self.session).iter().cloned().collect();
        let recorded = self.ledger.names()?.into_iter().map(|(key, _)| key).filter(|key| !key.is_primary());
        let owned: HashSet<String> = session.into_iter().chain(recorded).map(|key| host_link(key.as_str())).collect();
        let owned: HashSet<String> = living.iter().map(|sandbox| host_link(sandbox)).chain(owned).collect();
        for link in links {
            if is_host_link(&link.name) && masters.contains(&link.master) && !owned.contains(&link.name) {
                tracing::info!(link = link.name, "deleting a link that belongs to no pod");
                self.removal.push(link.name, |_| {});
            }
        }
        Ok(())
    }

    /// Runs `STATUS` of the plugins (CNI 1.1.0 and later).
    pub(crate) async fn query_plugins(&self) {
        let Ok(chain) = self.chain() else { return };
        if !chain.is_at_least("1.1.0") {
            return self.plugin_status.clear();
        }
        for plugin in chain.plugins() {
            let status = self.programs.status(&chain, plugin).await;
            self.plugin_status.note(&chain, plugin, status);
        }
    }
}
