//! The network of a node's pods: what is kept, whether it is ready, what it is.

use std::{
    collections::{BTreeSet, HashMap},
    fs::{File, OpenOptions},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::AtomicBool},
    time::Duration,
};

use syscall::file_lock::lock_within;
use tokio::sync::Semaphore;

use crate::{
    Config, Counters, Error, Figures,
    bridge::{BridgeOptions, Bridges},
    cni::{Chain, Directory, Element, Limits, PluginCall, Programs},
    counters::{self, NodeEnds},
    firewall::Firewall,
    ipam::Leases,
    ledger::Ledger,
    removal::Removal,
    turns::Turns,
};

/// The pod's interface.
pub(crate) const INTERFACE: &str = "eth0";
/// As long may a plugin take to attach a pod: some wait for a controller of their cluster. Whoever asked need not wait.
const ADD_LIMIT: Duration = Duration::from_secs(600);
/// As long may every other call take: somebody wants the pod gone.
const OTHER_LIMIT: Duration = Duration::from_secs(90);
/// How many may look for the configuration at once.
const LOOKS: usize = 8;

/// The network of a node's pods. Cheap to clone; all clones are one.
#[derive(Clone, Debug)]
pub struct Network {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) state: PathBuf,
    pub(crate) embedded: Arc<Chain>,
    pub(crate) directory: Directory,
    pub(crate) programs: Programs,
    pub(crate) figures: Arc<Figures>,
    pub(crate) ledger: Ledger,
    pub(crate) firewall: Firewall,
    pub(crate) bridges: Bridges,
    pub(crate) removal: Removal,
    /// Sandboxes attached since the start: the engine knows them, whatever list of living ones it made before.
    pub(crate) session: Mutex<BTreeSet<String>>,
    /// Plugins are never called at once for the same sandbox.
    pub(crate) turns: Turns,
    /// What a plugin's `STATUS` said last, by its type, when it was no success.
    pub(crate) unwell: Mutex<HashMap<String, String>>,
    /// A socket of its own: nobody who attaches a pod waits for figures.
    pub(crate) ends: Mutex<NodeEnds>,
    /// Something could not be undone.
    pub(crate) unfinished: AtomicBool,
    /// Who looks for the configuration, which may be on a disk that hangs.
    pub(crate) looks: Arc<Semaphore>,
    /// Held as long as we are: the state belongs to one daemon.
    _lock: File,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Network {
    /// Opens the state, and the sockets in the network namespace of the calling thread. Pods that the ledger knows keep
    /// what they have; nothing is made before the first pod is attached.
    ///
    /// # Errors
    /// [`Error::Config`] for a setting that cannot be; otherwise when state or sockets cannot be opened, or another
    /// process has the state.
    pub fn open(config: Config) -> Result<Self, Error> {
        Self::open_within(config, Limits { add: ADD_LIMIT, other: OTHER_LIMIT })
    }

    /// As [`Network::open`], with a time that one call of a CNI plugin may take.
    ///
    /// # Errors
    /// As [`Network::open`].
    pub fn open_with_limit(config: Config, plugin_limit: Duration) -> Result<Self, Error> {
        Self::open_within(config, Limits { add: plugin_limit, other: plugin_limit })
    }

    fn open_within(config: Config, limits: Limits) -> Result<Self, Error> {
        let embedded = Arc::new(Chain::embedded(&config)?);
        let state = config.state_dir.join("network");
        let ledger = Ledger::open(&state.join("attachments"))?;
        let owned = own(&state.join("owner"))?;
        ledger.sweep()?;
        let firewall = Firewall::open(&config.state_dir)?;
        for record in ledger.all()?.into_iter().filter_map(|entry| entry.record) {
            firewall.remember(&record.pod.sandbox, &record.ports, record.mappings());
        }
        let figures = Arc::new(Figures::default());
        let inner = Inner {
            embedded,
            directory: Directory::new(&config.cni_conf_dir),
            programs: Programs {
                directories: config.cni_bin_dirs,
                limits,
                progress: Arc::default(),
                figures: Arc::clone(&figures),
                starts: Default::default(),
            },
            figures,
            ledger,
            firewall,
            bridges: Bridges::open(&state)?,
            removal: Removal::open()?,
            session: Mutex::default(),
            turns: Turns::default(),
            unwell: Mutex::default(),
            unfinished: AtomicBool::new(false),
            looks: Arc::new(Semaphore::new(LOOKS)),
            ends: Mutex::new(NodeEnds::open()?),
            state,
            _lock: owned,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Ready, or why not: `cni config /etc/cni/net.d/10-x.conflist: not JSON: expected value at line 3 column 1`. The
    /// CNI directory is read again when it changed.
    ///
    /// # Errors
    /// What keeps pods from being attached.
    pub fn ready(&self) -> Result<(), Error> {
        let chain = self.inner.chain()?;
        for plugin in chain.plugins() {
            self.inner.programs.find(&plugin.kind).map_err(|e| Error::plugin(&plugin.kind, "lookup", e))?;
            if let Some(reason) = lock(&self.inner.unwell).get(&plugin.kind) {
                return Err(Error::plugin(&plugin.kind, "STATUS", reason.clone()));
            }
        }
        if chain.list.is_none()
            && let Some(options) = chain.bridge()
        {
            self.inner.free_subnet(options)?;
        }
        Ok(())
    }

    /// Which network pods get: `bridge pinion0 10.85.0.0/16 (built in)`, or `cni: 10-flannel.conflist`.
    #[must_use]
    pub fn describe(&self) -> String {
        match self.inner.chain() {
            Ok(chain) => chain.describe(),
            Err(e) => format!("none: {e}"),
        }
    }

    /// Waits until everything that [`Network::detach`] left to the background is gone.
    pub async fn settle(&self) {
        self.inner.settle().await;
    }

    /// Ends an attachment that is under way: a plugin that runs is killed with all it started, what was done is undone,
    /// and [`Network::attach`] returns an error. Nothing happens where none is.
    pub fn cancel(&self, sandbox: &str) {
        self.inner.programs.progress.cancel(sandbox);
    }

    /// What plugins were called for a sandbox, the oldest first; the last one may run still. Kept until its attachment
    /// is gone.
    #[must_use]
    pub fn calls(&self, sandbox: &str) -> Vec<PluginCall> {
        self.inner.programs.progress.calls(sandbox)
    }

    /// Counters of a namespace's interfaces, other than `lo`.
    ///
    /// # Errors
    /// When the namespace cannot be entered or asked.
    pub fn counters(&self, ns: &netns::Namespace) -> Result<Vec<Counters>, Error> {
        counters::of(ns)
    }

    /// Counters of the pods among these that are attached to a bridge by this process: one question to the kernel for
    /// all of them, from the node's side. A pod that is not told must be asked by [`Network::counters`].
    ///
    /// # Errors
    /// When the kernel cannot be asked.
    pub fn bridged_counters(&self, sandboxes: &[&str]) -> Result<HashMap<String, Counters>, Error> {
        lock(&self.inner.ends).counters(sandboxes)
    }
}

/// One that is just ending, or that a process forked which is dead, is waited for.
fn own(path: &Path) -> Result<File, Error> {
    const ENDING: Duration = Duration::from_secs(1);
    let open = OpenOptions::new().create(true).truncate(false).write(true).open(path);
    let file = open.map_err(|e| Error::path("open", path, e))?;
    lock_within(&file, ENDING).map_err(|_| {
        Error::config(path.display().to_string(), "another process has this network's state; stop it first")
    })?;
    Ok(file)
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
    /// The network for the next pod.
    pub(crate) fn chain(&self) -> Result<Arc<Chain>, Error> {
        Ok(self.directory.chain()?.unwrap_or_else(|| Arc::clone(&self.embedded)))
    }

    /// The chain a pod was attached by.
    pub(crate) fn chain_of(&self, list: Option<&serde_json::Value>) -> Result<Arc<Chain>, Error> {
        match list {
            None => Ok(Arc::clone(&self.embedded)),
            Some(list) => {
                let chain = Chain::parse(list.clone()).map_err(|e| Error::config("recorded CNI config", e))?;
                Ok(Arc::new(chain))
            }
        }
    }

    /// Where a chain's leases are.
    pub(crate) fn leases(&self, chain: &Chain) -> Result<Option<Leases>, Error> {
        let Some(options) = chain.bridge() else { return Ok(None) };
        let directory = match (&options.ipam.data_dir, &chain.list) {
            (Some(directory), _) => directory.join(&chain.name),
            // No network's name begins with a dot.
            (None, None) => self.leases_directory().join(".built-in"),
            (None, Some(_)) => self.leases_directory().join(&chain.name),
        };
        Leases::open(&chain.name, &directory).map(Some)
    }

    pub(crate) fn leases_directory(&self) -> PathBuf {
        self.state.join("leases")
    }

    /// The built-in network must not take the packets of another one.
    pub(crate) fn free_subnet(&self, options: &BridgeOptions) -> Result<(), Error> {
        match self.bridges.conflicting_route(options)? {
            None => Ok(()),
            Some((route, link)) => Err(Error::config(
                format!("network of bridge {}", options.bridge),
                format!("the node has a route to {route} on {link} already; set network.subnet to another subnet"),
            )),
        }
    }

    pub(crate) async fn settle(&self) {
        let wait = self.removal.settle();
        // It fails only where the runtime ends, and then nobody waits.
        let _ = offload::blocking(wait).await;
    }

    /// Elements that are done here, of a chain.
    pub(crate) fn is_here(element: &Element) -> bool {
        !matches!(element, Element::Exec(_))
    }
}
