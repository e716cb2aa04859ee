//! Compares the ledger, the kernel and the living sandboxes, and removes what has no owner.

use std::{
    collections::{BTreeSet, HashSet},
    fs,
    sync::{Arc, atomic::Ordering},
};

use futures_util::{StreamExt, stream};

use crate::{
    Error, Network,
    attachment::INTERFACE,
    bridge::{self, host_link, is_host_link},
    cni::Chain,
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
        let leftovers = names.into_iter().filter(|(sandbox, leaving)| {
            // A sandbox in the session was attached (again) after the ledger was read.
            let again = lock(&inner.session).contains(sandbox);
            // A locked sandbox is already being undone by its caller; do not wait here for that caller's plugin.
            !again && !inner.locks.is_locked(sandbox) && (*leaving || !living.contains(sandbox))
        });
        let undone = stream::iter(leftovers).map(|(sandbox, _)| async move { undo(inner, &sandbox, None).await });
        undone.buffer_unordered(AT_ONCE).collect::<Vec<_>>().await.into_iter().for_each(&mut record);
        inner.settle().await;
        let (shared, alive) = (Arc::clone(inner), living.clone());
        let swept = offload::blocking(move || shared.sweep(&alive)).await;
        record(swept.unwrap_or_else(|e| Err(Error::kernel("reconcile", "network", std::io::Error::other(e)))));
        inner.settle().await;
        record(inner.query_plugins(living).await);
        first
    }

    /// Reports whether undoing an attachment has failed since the last [`Network::reconcile`] began. Calling it again
    /// may succeed now.
    pub fn is_unfinished(&self) -> bool {
        self.inner.unfinished.load(Ordering::Relaxed)
    }

    /// Removes the built-in bridge and our nftables tables, and turns forwarding off if we turned it on. For tests and
    /// uninstallation.
    ///
    /// # Errors
    /// While a pod is attached; otherwise the kernel's error.
    pub async fn teardown(&self) -> Result<(), Error> {
        self.settle().await;
        let attached = self.inner.ledger.all()?.len();
        if attached > 0 {
            return Err(Error::config("network", format!("{attached} pods are attached; remove them first")));
        }
        let inner = Arc::clone(&self.inner);
        let work = move || {
            if let Some(options) = inner.built_in.bridge() {
                inner.bridges.delete(&options.bridge)?;
            }
            inner.firewall.delete()?;
            bridge::restore_forwarding(&inner.state)
        };
        let done = offload::blocking(work).await;
        done.map_err(|e| Error::kernel("remove", "network", std::io::Error::other(e)))?
    }
}

impl Inner {
    fn lives(&self, living: &HashSet<String>, sandbox: &str) -> bool {
        living.contains(sandbox) || lock(&self.session).contains(sandbox)
    }

    fn sweep(&self, living: &HashSet<String>) -> Result<(), Error> {
        for sandbox in self.firewall.sandboxes() {
            if !self.lives(living, &sandbox) {
                self.firewall.remove_ports(&sandbox)?;
            }
        }
        self.sweep_links(living)?;
        let directory = self.leases_directory();
        let entries = fs::read_dir(&directory).map(|entries| entries.flatten().collect::<Vec<_>>()).unwrap_or_default();
        for entry in entries.into_iter().filter(|entry| entry.path().is_dir()) {
            Leases::open(&entry.file_name().to_string_lossy(), &entry.path())?.release_unless(|owner| {
                self.lives(living, owner) || !self.ledger.get(owner).is_ok_and(|entry| entry.is_none())
            })?;
        }
        self.firewall.verify()
    }

    /// Deletes links on our bridges that have a name of ours but no living sandbox.
    fn sweep_links(&self, living: &HashSet<String>) -> Result<(), Error> {
        let chain = self.chain().ok();
        let bridges: BTreeSet<&str> = [Some(&self.built_in), chain.as_ref()]
            .into_iter()
            .flatten()
            .filter_map(|chain: &Arc<Chain>| chain.bridge())
            .map(|options| options.bridge.as_str())
            .collect();
        let links = self.bridges.with_socket(rtnl::links).map_err(|e| Error::kernel("list", "links", e))?;
        let masters: HashSet<u32> =
            links.iter().filter(|l| bridges.contains(l.name.as_str())).map(|l| l.index).collect();
        // Read after the links, so that it contains a pod that was attached in between.
        let session: Vec<String> = lock(&self.session).iter().cloned().collect();
        let owned: HashSet<String> = living.iter().chain(&session).map(|sandbox| host_link(sandbox)).collect();
        for link in links {
            if is_host_link(&link.name) && masters.contains(&link.master) && !owned.contains(&link.name) {
                tracing::info!(link = link.name, "deleting a link that belongs to no pod");
                self.removal.push(link.name, |_| {});
            }
        }
        Ok(())
    }

    /// Runs `GC` and `STATUS` of the plugins (CNI 1.1.0 and later).
    async fn query_plugins(&self, living: &HashSet<String>) -> Result<(), Error> {
        let Ok(chain) = self.chain() else { return Ok(()) };
        if !chain.is_at_least("1.1.0") {
            return Ok(());
        }
        let attached: BTreeSet<String> = living.iter().cloned().chain(lock(&self.session).iter().cloned()).collect();
        let attached: Vec<String> = attached.into_iter().collect();
        let mut first = Ok(());
        for plugin in chain.plugins() {
            let status = self.programs.status(&chain, plugin).await;
            self.note_status(&plugin.kind, status);
            if !chain.disable_gc {
                let collected = self.programs.collect(&chain, plugin, &attached, INTERFACE).await;
                first = first.and(collected);
            }
        }
        first
    }

    fn note_status(&self, plugin: &str, status: Result<(), Error>) {
        let mut failed_status = lock(&self.failed_status);
        match status {
            Ok(()) => drop(failed_status.remove(plugin)),
            Err(Error::Plugin { reason, .. }) => drop(failed_status.insert(plugin.to_owned(), reason)),
            Err(e) => drop(failed_status.insert(plugin.to_owned(), e.to_string())),
        }
    }
}
