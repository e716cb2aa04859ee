//! The `Network` of a node: its state, readiness and description.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    fs::{self, File, OpenOptions},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use cni_plugins::Announcer;
use resolver::{Resolver, Shared};
use syscall::file_lock::lock_with_timeout;
use tokio::sync::Semaphore;

use crate::{
    Config, Counters, Error, Metrics,
    activity::{Activity, Collected},
    attachment_key::AttachmentKey,
    bridge::{BridgeOptions, Bridges},
    cni::{self, Chain, Directory, Element, Limits, PluginCall, Programs},
    counters::{self, NodeEnds},
    deferred::Deferred,
    firewall::Firewall,
    ipam::Leases,
    ledger::Ledger,
    named::{OverlayStore, Pools, Store},
    names::NameTable,
    overlay_passes::Passes,
    overlay_states::AgentStates,
    plugin_status::PluginStatus,
    removal::Removal,
    sandbox_lock::SandboxLocks,
};

/// Longest time that a plugin's `ADD` may take: some wait for a controller of their cluster. Callers of
/// [`Network::attach`] can stop waiting earlier.
const ADD_LIMIT: Duration = Duration::from_secs(600);
/// Longest time that every other plugin call may take. It is shorter because the pod is to be removed.
const OTHER_LIMIT: Duration = Duration::from_secs(90);
/// Longest time that a plugin's `CHECK` may take. The removal of the pod cancels it.
const CHECK_LIMIT: Duration = Duration::from_secs(30);
/// Longest time that a plugin's `GC` may take: attaching and detaching pods waits for it.
const COLLECT_LIMIT: Duration = Duration::from_secs(30);
/// How long the detachment of a pod fails because the program of a plugin is missing. After that the pod is detached
/// without that plugin. Upgrades of plugins replace their programs within seconds.
const MISSING_LIMIT: Duration = Duration::from_secs(30);
/// How long [`Network::settle`] waits.
const ALL_REMOVED: Duration = Duration::from_secs(60);
/// The list of the node's resolvers.
const NODE_RESOLVERS: &str = "/etc/resolv.conf";
/// How many tasks may read the configuration at the same time.
const CONFIG_READS_MAX: usize = 8;

/// The network of a node's pods. Clones share the same state and are cheap.
#[derive(Clone, Debug)]
pub struct Network {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) state: PathBuf,
    pub(crate) built_in: Arc<Chain>,
    pub(crate) directory: Directory,
    /// Names of networks that pods may select; `*` is every one of the directory.
    pub(crate) selectable: Vec<String>,
    /// Networks that people created.
    pub(crate) named: Arc<Store>,
    /// What subnets of named networks are chosen from.
    pub(crate) pools: Pools,
    /// Where overlays that people create are kept.
    pub(crate) overlay_store: Option<OverlayStore>,
    /// Names of pods in named networks.
    pub(crate) names: Arc<NameTable>,
    /// Resolvers of pods, by sandbox.
    pub(crate) resolvers: Mutex<HashMap<String, Resolver>>,
    pub(crate) shared_resolver: Shared,
    pub(crate) programs: Programs,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) ledger: Ledger,
    pub(crate) firewall: Firewall,
    pub(crate) bridges: Bridges,
    pub(crate) removal: Removal,
    pub(crate) deferred: Deferred,
    /// Attachments made since the start. The reconciler treats them as living even if its list of living sandboxes was
    /// made before they were attached.
    pub(crate) session: Mutex<BTreeSet<AttachmentKey>>,
    /// Sandboxes with more than one attachment.
    pub(crate) multihomed: Mutex<HashSet<String>>,
    /// Keeps `GC` apart from `ADD` and `DEL`.
    pub(crate) activity: Activity,
    pub(crate) collected: Collected,
    /// Reason of the last failed `CHECK`, by sandbox.
    pub(crate) failed_checks: Mutex<HashMap<String, String>>,
    /// Serializes plugin calls for the same sandbox.
    pub(crate) locks: SandboxLocks,
    pub(crate) plugin_status: PluginStatus,
    /// What the agents of overlays report.
    pub(crate) agent_states: AgentStates,
    pub(crate) overlay_passes: Arc<Passes>,
    /// Has a socket of its own, so that reading counters does not delay attaching pods.
    pub(crate) ends: Mutex<NodeEnds>,
    /// Set when an attachment could not be undone.
    pub(crate) unfinished: AtomicBool,
    /// Set if the programs of plugins are not waited for anymore.
    pub(crate) skips_missing: AtomicBool,
    /// Limits the threads that read the configuration, which may be on a disk that hangs.
    pub(crate) config_reads: Arc<Semaphore>,
    /// Lock file, held for the lifetime of this value: only one daemon may use the state directory.
    _lock: File,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Without an announcer the kernel announces addresses, which takes longer.
fn start_announcer() -> Announcer {
    let started = Announcer::start();
    started
        .inspect_err(|error| tracing::warn!("announce addresses of pods in the background: {error}"))
        .unwrap_or_default()
}

impl Network {
    /// Opens the state directory, and sockets in the network namespace of the calling thread. Pods in the ledger keep
    /// their ports; no kernel object is created before the first pod is attached.
    ///
    /// # Errors
    /// [`Error::Config`] for an invalid setting or when another process uses the state directory; otherwise when the
    /// state directory or a socket cannot be opened.
    pub fn open(config: Config) -> Result<Self, Error> {
        Self::open_within(
            config,
            Limits {
                add: ADD_LIMIT,
                check: CHECK_LIMIT,
                collect: COLLECT_LIMIT,
                other: OTHER_LIMIT,
                missing: MISSING_LIMIT,
            },
        )
    }

    /// Like [`Network::open`], with the longest time that one call of a CNI plugin may take, and for which the program of
    /// one is waited for that is missing when a pod is detached.
    ///
    /// # Errors
    /// See [`Network::open`].
    pub fn open_with_limit(config: Config, plugin_limit: Duration) -> Result<Self, Error> {
        Self::open_within(
            config,
            Limits {
                add: plugin_limit,
                check: plugin_limit,
                collect: plugin_limit,
                other: plugin_limit,
                missing: plugin_limit,
            },
        )
    }

    fn open_within(config: Config, limits: Limits) -> Result<Self, Error> {
        let built_in = Arc::new(Chain::built_in(&config)?);
        let state = config.state_dir.join("network");
        fs::create_dir_all(&state).map_err(|e| Error::path("create", &state, e))?;
        // An earlier owner may still write records.
        let state_lock = lock_state(&state.join("owner"))?;
        let ledger = Ledger::open(&state.join("attachments"))?;
        ledger.sweep()?;
        let secondary = ledger.names()?.into_iter().filter(|(key, _)| !key.is_primary());
        let multihomed = secondary.map(|(key, _)| key.sandbox().to_owned()).collect();
        let firewall = Firewall::open(&config.state_dir)?;
        let names = Arc::new(NameTable::default());
        for (key, is_leaving) in ledger.names()? {
            let Some(record) = ledger.get(&key)?.and_then(|entry| entry.record) else { continue };
            if !is_leaving {
                names.attach(&record);
            }
            let chain = recorded_chain(&built_in, record.list.as_ref()).ok();
            let reserved = chain.as_ref().map_or(&record.ports[..], |chain| chain.reserved(&record.all_ports));
            firewall.remember(record.key().as_str(), reserved, record.mappings());
            if let Some(options) = chain.as_ref().and_then(|chain| chain.bridge()) {
                firewall.remember_network(&options.bridge, &options.subnets(), options.masquerade, options.scope());
            }
        }
        let metrics = Arc::new(Metrics::default());
        let inner = Inner {
            built_in,
            directory: Directory::new(&config.cni_conf_dir),
            selectable: config.selectable,
            named: Arc::new(Store::open(&config.definitions_dir)?),
            pools: Pools::parse(&config.address_pools)?,
            overlay_store: match &config.overlay {
                Some(overlay) => OverlayStore::parse(overlay, &config.state_dir)?,
                None => None,
            },
            names,
            resolvers: Mutex::default(),
            shared_resolver: Shared::new(PathBuf::from(NODE_RESOLVERS)),
            programs: Programs {
                directories: config.cni_bin_dirs,
                limits,
                progress: Arc::default(),
                metrics: Arc::clone(&metrics),
                start_limit: Default::default(),
                nft: Default::default(),
                announcer: start_announcer(),
            },
            metrics,
            ledger,
            firewall,
            bridges: Bridges::open(&state)?,
            removal: Removal::open()?,
            deferred: Deferred::default(),
            session: Mutex::default(),
            multihomed: Mutex::new(multihomed),
            activity: Activity::default(),
            collected: Collected::default(),
            failed_checks: Mutex::default(),
            locks: SandboxLocks::default(),
            plugin_status: PluginStatus::default(),
            agent_states: AgentStates::default(),
            overlay_passes: Arc::default(),
            unfinished: AtomicBool::new(false),
            skips_missing: AtomicBool::new(false),
            config_reads: Arc::new(Semaphore::new(CONFIG_READS_MAX)),
            ends: Mutex::new(NodeEnds::open()?),
            state,
            _lock: state_lock,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Reports whether pods can be attached. The error names the cause: `cni config /etc/cni/net.d/10-x.conflist: not
    /// JSON: expected value at line 3 column 1`. The CNI directory is read again if it changed.
    ///
    /// # Errors
    /// The reason why pods cannot be attached.
    pub fn ready(&self) -> Result<(), Error> {
        let chain = self.inner.chain()?;
        for plugin in chain.plugins() {
            let is_built_in = cni::is_built_in(&plugin.kind, &plugin.config);
            let program = || self.inner.programs.find(&plugin.kind);
            if !is_built_in && program().map_err(|e| Error::plugin(&plugin.kind, "lookup", e))?.is_none() {
                return Err(self.inner.programs.missing(&plugin.kind, "lookup"));
            }
            if let Some(failure) = self.inner.plugin_status.failure(&chain, plugin) {
                return Err(failure);
            }
        }
        if chain.list.is_none()
            && let Some(options) = chain.bridge()
        {
            self.inner.free_subnet(options)?;
        }
        Ok(())
    }

    /// Returns the network that pods get: `bridge pinion0 10.85.0.0/16 (built in)`, or `cni: 10-flannel.conflist`; and why
    /// overlays cannot follow their nodes.
    #[must_use]
    pub fn describe(&self) -> String {
        let network = match self.inner.chain() {
            Ok(chain) => chain.describe(),
            Err(e) => format!("none: {e}"),
        };
        [network].into_iter().chain(self.inner.agent_states.failures()).collect::<Vec<_>>().join("; ")
    }

    /// Returns the metrics of this network.
    #[must_use]
    pub fn metrics(&self) -> &Metrics {
        &self.inner.metrics
    }

    /// Waits until the deletions are done that [`Network::detach`] has left to the background, for a minute at most: a
    /// plugin may hang.
    pub async fn settle(&self) {
        self.inner.settle(ALL_REMOVED).await;
    }

    /// Cancels an attachment in progress: a running plugin and all processes it started are killed, completed steps are
    /// undone, and [`Network::attach`] returns an error. Does nothing if no attachment is in progress.
    pub fn cancel(&self, sandbox: &str) {
        self.inner.programs.progress.cancel(sandbox);
    }

    /// From now on, pods are detached without plugins whose programs are missing, at once.
    pub fn skip_missing_plugins(&self) {
        self.inner.skips_missing.store(true, Ordering::Relaxed);
    }

    /// Returns the plugin calls of a sandbox, the oldest first; the last one may still be running. They are kept until
    /// the attachment is gone.
    #[must_use]
    pub fn calls(&self, sandbox: &str) -> Vec<PluginCall> {
        self.inner.programs.progress.calls(sandbox)
    }

    /// Returns the counters of a namespace's interfaces except `lo`.
    ///
    /// # Errors
    /// When the namespace cannot be entered or the counters cannot be read.
    pub fn counters(&self, ns: &netns::Namespace) -> Result<Vec<Counters>, Error> {
        counters::of_namespace(ns)
    }

    /// Returns the counters of those of these sandboxes that have no network but a built-in bridge, with one netlink
    /// request in the node's namespace for all of them. For a sandbox that is missing in the result use
    /// [`Network::counters`].
    ///
    /// # Errors
    /// When the kernel refuses the request.
    pub fn bridged_counters(&self, sandboxes: &[&str]) -> Result<HashMap<String, Counters>, Error> {
        let multihomed = lock(&self.inner.multihomed);
        let bridged: Vec<&str> = sandboxes.iter().copied().filter(|sandbox| !multihomed.contains(*sandbox)).collect();
        drop(multihomed);
        lock(&self.inner.ends).counters(&bridged)
    }
}

/// Locks the state directory. Waits for a daemon that is ending, and for a process that a dead daemon forked, which
/// still has the lock's descriptor.
fn lock_state(path: &Path) -> Result<File, Error> {
    const ENDING: Duration = Duration::from_secs(1);
    let open = OpenOptions::new().create(true).truncate(false).write(true).open(path);
    let file = open.map_err(|e| Error::path("open", path, e))?;
    lock_with_timeout(&file, ENDING).map_err(|_| {
        Error::config(path.display().to_string(), "another process uses this network's state; stop that process first")
    })?;
    Ok(file)
}

/// Returns the chain of a record.
fn recorded_chain(built_in: &Arc<Chain>, list: Option<&serde_json::Value>) -> Result<Arc<Chain>, Error> {
    match list {
        None => Ok(Arc::clone(built_in)),
        Some(list) => {
            let chain = Chain::parse(list.clone()).map_err(|e| Error::config("recorded CNI config", e))?;
            Ok(Arc::new(chain))
        }
    }
}

impl Chain {
    fn describe(&self) -> String {
        match (&self.file, self.bridge()) {
            (Some(file), _) => format!("cni: {}", file.file_name().unwrap_or(file.as_os_str()).display()),
            (None, Some(options)) => {
                let subnets: Vec<String> = options.ranges().map(|range| range.subnet.to_string()).collect();
                format!("bridge {} {} (built in)", options.bridge, subnets.join(" "))
            }
            (None, None) => self.name.clone(),
        }
    }
}

impl Inner {
    /// Returns the network that the next pod gets.
    pub(crate) fn chain(&self) -> Result<Arc<Chain>, Error> {
        Ok(self.directory.chain()?.unwrap_or_else(|| Arc::clone(&self.built_in)))
    }

    /// Reports whether pods may select a network, or request addresses of it. The built-in network has to be named: next
    /// to a network plugin it would bypass the rules of that plugin.
    pub(crate) fn is_selectable(&self, chain: &Chain) -> bool {
        let is_all = |name: &String| name == "*" && chain.list.is_some();
        self.selectable.iter().any(|name| *name == chain.name || is_all(name))
    }

    /// Returns the network of a name: one of the CNI directory, or the built-in one.
    pub(crate) fn chain_named(&self, name: &str) -> Result<Arc<Chain>, Error> {
        match self.directory.named(name)? {
            Some(chain) => Ok(chain),
            None if name == self.built_in.name => Ok(Arc::clone(&self.built_in)),
            None => Err(Error::selection(
                format!("network {name}"),
                format!("no file of {} configures a network of this name", self.directory.path().display()),
            )),
        }
    }

    /// Returns the chain that a pod was attached with.
    pub(crate) fn chain_of(&self, list: Option<&serde_json::Value>) -> Result<Arc<Chain>, Error> {
        recorded_chain(&self.built_in, list)
    }

    /// Opens the leases of a chain; `None` if it has no bridge.
    pub(crate) fn leases(&self, chain: &Chain) -> Result<Option<Leases>, Error> {
        let Some(options) = chain.bridge() else { return Ok(None) };
        let directory = match (&options.ipam.data_dir, &chain.list) {
            (Some(directory), _) => directory.join(&chain.name),
            // The name of a network cannot begin with a dot.
            (None, None) => self.leases_directory().join(".built-in"),
            (None, Some(_)) => self.leases_directory().join(&chain.name),
        };
        Ok(Some(Leases::open(&chain.name, &directory)?))
    }

    pub(crate) fn leases_directory(&self) -> PathBuf {
        self.state.join("leases")
    }

    /// Rejects a subnet of the built-in network that takes packets of another network of the node.
    pub(crate) fn free_subnet(&self, options: &BridgeOptions) -> Result<(), Error> {
        match self.bridges.conflicting_route(options)? {
            None => Ok(()),
            Some((route, link)) => Err(Error::config(
                format!("network of bridge {}", options.bridge),
                format!("the node has a route to {route} on {link} already; set network.subnet to another subnet"),
            )),
        }
    }

    /// Waits until what detached pods had is removed, as far as that is being done now; not longer than `patience` for
    /// what plugins remove.
    pub(crate) async fn settle(&self, patience: Duration) {
        self.deferred.settle(patience).await;
        self.settle_links().await;
    }

    /// Waits until no link is queued for deletion.
    pub(crate) async fn settle_links(&self) {
        // It fails only while the runtime shuts down; then no caller waits.
        let _ = offload::blocking(self.removal.settle()).await;
    }

    /// Like [`Inner::settle`], on a thread that may block.
    pub(crate) fn settle_blocking(&self, patience: Duration) {
        self.deferred.settle_blocking(patience);
        self.removal.settle()();
    }

    /// Reports whether what detached pods had is being removed in the background.
    pub(crate) fn is_removing(&self) -> bool {
        self.deferred.is_busy() || self.removal.is_busy()
    }

    /// Reports whether an element is built in.
    pub(crate) fn is_built_in(element: &Element) -> bool {
        !matches!(element, Element::Exec(_))
    }
}
