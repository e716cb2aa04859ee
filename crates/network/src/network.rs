//! The network of a node's pods: what is kept, whether it is ready, what it is.

use std::{
    collections::{BTreeSet, HashMap},
    fs::{File, OpenOptions},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rustix::{fs::FlockOperation, fs::flock};

use crate::{
    Config, Counters, Error,
    bridge::{BridgeOptions, Bridges},
    cni::{Chain, Element, Folder, Programs},
    counters,
    firewall::Firewall,
    ipam::Leases,
    ledger::Ledger,
    removal::Removal,
};

/// The pod's interface.
pub(crate) const INTERFACE: &str = "eth0";
/// As long may one call of a plugin take; some wait for their own daemon.
const PLUGIN_LIMIT: Duration = Duration::from_secs(90);

/// The network of a node's pods. Cheap to clone; all clones are one.
#[derive(Clone, Debug)]
pub struct Network {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) state: PathBuf,
    pub(crate) embedded: Arc<Chain>,
    pub(crate) folder: Folder,
    pub(crate) programs: Programs,
    pub(crate) ledger: Ledger,
    pub(crate) firewall: Firewall,
    pub(crate) bridges: Bridges,
    pub(crate) removal: Removal,
    /// Sandboxes attached since the start: the engine knows them, whatever list of living ones it made before.
    pub(crate) session: Mutex<BTreeSet<String>>,
    /// What a plugin's `STATUS` said last, by its type, when it was no success.
    pub(crate) unwell: Mutex<HashMap<String, String>>,
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
        Self::open_with_limit(config, PLUGIN_LIMIT)
    }

    /// As [`Network::open`], with a time that one call of a CNI plugin may take.
    ///
    /// # Errors
    /// As [`Network::open`].
    pub fn open_with_limit(config: Config, plugin_limit: Duration) -> Result<Self, Error> {
        let embedded = Arc::new(Chain::embedded(&config)?);
        let state = config.state_dir.join("network");
        let ledger = Ledger::open(&state.join("attachments"))?;
        let owned = own(&state.join("owner"))?;
        let firewall = Firewall::open()?;
        for record in ledger.all()?.into_iter().filter_map(|entry| entry.record) {
            firewall.remember(&record.pod.sandbox, &record.ports, record.mappings());
        }
        let inner = Inner {
            embedded,
            folder: Folder::new(&config.cni_conf_dir),
            programs: Programs { folders: config.cni_bin_dirs, limit: plugin_limit },
            ledger,
            firewall,
            bridges: Bridges::open(&state)?,
            removal: Removal::open()?,
            session: Mutex::default(),
            unwell: Mutex::default(),
            state,
            _lock: owned,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Ready, or why not: `cni config /etc/cni/net.d/10-x.conflist: not JSON: expected value at line 3 column 1`. The CNI
    /// folder is read again when it changed.
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

    /// Counters of a namespace's interfaces, other than `lo`.
    ///
    /// # Errors
    /// When the namespace cannot be entered or asked.
    pub fn counters(&self, ns: &netns::Namespace) -> Result<Vec<Counters>, Error> {
        counters::of(ns)
    }
}

fn own(path: &Path) -> Result<File, Error> {
    let open = OpenOptions::new().create(true).truncate(false).write(true).open(path);
    let file = open.map_err(|e| Error::path("open", path, e))?;
    flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|_| {
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
        Ok(self.folder.chain()?.unwrap_or_else(|| Arc::clone(&self.embedded)))
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
        let folder = match (&options.ipam.data_dir, &chain.list) {
            (Some(folder), _) => folder.join(&chain.name),
            // No network's name begins with a dot.
            (None, None) => self.leases_folder().join(".built-in"),
            (None, Some(_)) => self.leases_folder().join(&chain.name),
        };
        Leases::open(&chain.name, &folder).map(Some)
    }

    pub(crate) fn leases_folder(&self) -> PathBuf {
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
        let _ = tokio::task::spawn_blocking(wait).await;
    }

    /// Elements that are done here, of a chain.
    pub(crate) fn is_here(element: &Element) -> bool {
        !matches!(element, Element::Exec(_))
    }
}
