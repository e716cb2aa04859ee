//! Comparing ledger, kernel and living sandboxes, and removing what no one owns.

use std::{
    collections::{BTreeSet, HashSet},
    fs,
    sync::{Arc, atomic::Ordering},
};

use futures_util::{StreamExt, stream};

use crate::{
    Error, Network,
    bridge::{self, host_link, is_host_link},
    cni::Chain,
    detach::undo,
    ipam::Leases,
    network::{INTERFACE, Inner, lock},
    rtnl,
};

/// How many attachments are undone at once: a plugin that sleeps for one keeps none of the others.
const AT_ONCE: usize = 8;

impl Network {
    /// Removes what belongs to no living sandbox: attachments, links, addresses, ports. Sandboxes that were attached
    /// since [`Network::open`] are living whether `living` has them or not. Puts back what others took from our
    /// nftables table. To be called at start and on a timer; it also asks plugins for their `STATUS`, which
    /// [`Network::ready`] then tells.
    ///
    /// # Errors
    /// The first failure, after everything was tried.
    pub async fn reconcile(&self, living: &HashSet<String>) -> Result<(), Error> {
        let inner = &self.inner;
        inner.unfinished.store(false, Ordering::Relaxed);
        let mut first = Ok(());
        let mut tried = |outcome: Result<(), Error>| {
            if first.is_ok() {
                first = outcome;
            }
        };
        let names = inner.ledger.names().inspect_err(|_| inner.unfinished.store(true, Ordering::Relaxed))?;
        let left = names.into_iter().filter(|(sandbox, leaving)| {
            // One in the session was attached (again) since the ledger was read.
            let again = lock(&inner.session).contains(sandbox);
            // One whose turn is taken is being undone by who wants it gone: no call of its own waits for a plugin here.
            !again && !inner.turns.is_taken(sandbox) && (*leaving || !living.contains(sandbox))
        });
        let undone = stream::iter(left).map(|(sandbox, _)| async move { undo(inner, &sandbox, None).await });
        undone.buffer_unordered(AT_ONCE).collect::<Vec<_>>().await.into_iter().for_each(&mut tried);
        inner.settle().await;
        let (theirs, alive) = (Arc::clone(inner), living.clone());
        let swept = offload::blocking(move || theirs.sweep(&alive)).await;
        tried(swept.unwrap_or_else(|e| Err(Error::kernel("reconcile", "network", std::io::Error::other(e)))));
        inner.settle().await;
        tried(inner.ask_plugins(living).await);
        first
    }

    /// Whether something could not be undone since the last [`Network::reconcile`] began, which may do it now.
    pub fn is_unfinished(&self) -> bool {
        self.inner.unfinished.load(Ordering::Relaxed)
    }

    /// Removes the built-in bridge, our nftables tables, and forwarding where we had turned it on. For tests and
    /// removal.
    ///
    /// # Errors
    /// While a pod is attached; otherwise what the kernel said.
    pub async fn teardown(&self) -> Result<(), Error> {
        self.settle().await;
        let attached = self.inner.ledger.all()?.len();
        if attached > 0 {
            return Err(Error::config("network", format!("{attached} pods are attached; remove them first")));
        }
        let inner = Arc::clone(&self.inner);
        let work = move || {
            if let Some(options) = inner.embedded.bridge() {
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

    /// Links on our bridges with names of ours and no one behind them.
    fn sweep_links(&self, living: &HashSet<String>) -> Result<(), Error> {
        let chain = self.chain().ok();
        let bridges: BTreeSet<&str> = [Some(&self.embedded), chain.as_ref()]
            .into_iter()
            .flatten()
            .filter_map(|chain: &Arc<Chain>| chain.bridge())
            .map(|options| options.bridge.as_str())
            .collect();
        let links = self.bridges.with_socket(rtnl::links).map_err(|e| Error::kernel("list", "links", e))?;
        let masters: HashSet<u32> =
            links.iter().filter(|l| bridges.contains(l.name.as_str())).map(|l| l.index).collect();
        // Asked after the links: a pod attached meanwhile is in it.
        let session: Vec<String> = lock(&self.session).iter().cloned().collect();
        let owned: HashSet<String> = living.iter().chain(&session).map(|sandbox| host_link(sandbox)).collect();
        for link in links {
            if is_host_link(&link.name) && masters.contains(&link.master) && !owned.contains(&link.name) {
                tracing::info!(link = link.name, "removing a link of no pod");
                self.removal.push(link.name, |_| {});
            }
        }
        Ok(())
    }

    /// `GC` and `STATUS` of the plugins, as of CNI 1.1.0.
    async fn ask_plugins(&self, living: &HashSet<String>) -> Result<(), Error> {
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
        let mut unwell = lock(&self.unwell);
        match status {
            Ok(()) => drop(unwell.remove(plugin)),
            Err(Error::Plugin { reason, .. }) => drop(unwell.insert(plugin.to_owned(), reason)),
            Err(e) => drop(unwell.insert(plugin.to_owned(), e.to_string())),
        }
    }
}
