//! The registered plugins.
//!
//! ```text
//! launched, or connected ─▶ RegisterPlugin ─▶ Configure ─▶ in the list ─▶ Synchronize ─▶ usable
//! ```
//! A plugin is in the list before it is synchronized, and the list is extended in the same moment in which the pods and
//! containers are determined that it is synchronized with. So each object is either among those, or its creation goes to
//! the plugin, and the creation waits for the plugin's turn, which the synchronization has. No lock is held while a
//! plugin is waited for.

use std::{
    collections::BTreeMap,
    collections::BTreeSet,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use futures_util::future::BoxFuture;
use tokio::sync::watch;

use crate::{
    Config, Error, Round,
    eviction::PendingEviction,
    messages::{Container, ContainerUpdate, Pod},
    plugin::Plugin,
    required::required,
    round::check_present,
};

/// Most plugins that are connected at the same time.
pub(crate) const PLUGINS_MAX: usize = 64;

/// Ids of pods and containers.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// Ids of pods.
    pub pods: Vec<String>,
    /// Ids of containers.
    pub containers: Vec<String>,
}

/// The engine, as plugins use it.
pub trait Host: Send + Sync + 'static {
    /// Returns the pods and containers that [`Plugins::admit`] was called for. Must not block.
    fn known(&self) -> Known;
    /// Describes pods and containers; those that were removed in the meantime are left out.
    fn describe(&self, known: Known) -> BoxFuture<'static, (Vec<Pod>, Vec<Container>)>;
    /// Updates containers, and returns the updates that failed. Must end in bounded time, whatever the containers do.
    fn update(&self, updates: Vec<ContainerUpdate>) -> BoxFuture<'static, Vec<ContainerUpdate>>;
    /// Begins to stop containers. An eviction is dropped when it ended.
    fn evict(&self, evictions: Vec<PendingEviction>);
}

/// A registered plugin, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginInfo {
    /// Its index and name.
    pub name: String,
    /// Its process, if that is known.
    pub pid: Option<i32>,
    /// Whether it was launched, in contrast to one that connected.
    pub launched: bool,
    /// Whether it was synchronized and gets events.
    pub synchronized: bool,
}

/// The registered plugins.
pub struct Plugins {
    pub(crate) config: Config,
    list: Mutex<Vec<Arc<Plugin>>>,
    count: AtomicUsize,
    /// Changes whenever a plugin becomes usable or disappears.
    pub(crate) changed: watch::Sender<()>,
    pub(crate) host: OnceLock<Arc<dyn Host>>,
}

impl Plugins {
    /// Creates an empty list; [`Self::start`] fills it.
    pub fn new(config: Config) -> Arc<Self> {
        let changed = watch::Sender::new(());
        Arc::new(Self { config, list: Mutex::default(), count: AtomicUsize::new(0), changed, host: OnceLock::new() })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Plugin>>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn host(&self) -> Option<Arc<dyn Host>> {
        self.host.get().cloned()
    }

    /// Returns the plugins that an event goes to; `None` if there are none, which costs one atomic load.
    pub fn round(&self) -> Option<Round> {
        if self.count.load(Ordering::SeqCst) == 0 {
            return None;
        }
        Some(self.round_of(self.lock().clone()))
    }

    /// Marks a pod or container as known to plugins, and returns the plugins that its creation goes to.
    pub fn admit(&self, id: &str, mark: &AtomicBool) -> Option<Round> {
        mark.store(true, Ordering::SeqCst);
        // A plugin that is added after this load finds the mark.
        if self.count.load(Ordering::SeqCst) == 0 {
            return None;
        }
        let mut plugins = self.lock().clone();
        plugins.retain(|plugin| !plugin.was_synchronized_with(id));
        Some(self.round_of(plugins))
    }

    fn round_of(&self, plugins: Vec<Arc<Plugin>>) -> Round {
        Round { plugins, timeout: self.config.request_timeout, restrictions: self.config.restrictions.clone() }
    }

    /// Returns the names of the plugins that a container needs, or those that its pod needs if `container` is empty.
    /// Waits for those that are absent, for as long as a plugin may take to register.
    ///
    /// # Errors
    /// `Unavailable` if one is absent after that time; `Refused` if an annotation of the pod is not understood.
    pub async fn require(&self, annotations: &BTreeMap<String, String>, container: &str) -> Result<Vec<String>, Error> {
        let names = required(&self.config, annotations, container)?;
        if names.is_empty() {
            return Ok(names);
        }
        let mut changes = self.changed.subscribe();
        let present = async {
            while self.check(&names).is_err() {
                let _ = changes.changed().await;
            }
        };
        let _ = tokio::time::timeout(self.config.registration_timeout, present).await;
        self.check(&names).map(|()| names)
    }

    /// Fails if one of these plugins is absent, or not synchronized yet.
    ///
    /// # Errors
    /// `Unavailable`.
    pub fn check(&self, required: &[String]) -> Result<(), Error> {
        if required.is_empty() {
            return Ok(());
        }
        let plugins = self.lock().clone();
        let usable = plugins.iter().filter(|plugin| plugin.is_usable());
        check_present(required, &usable.map(|plugin| plugin.base.as_str()).collect())
    }

    /// Fails if a creation that goes to no plugin requires one, also if that has joined since.
    ///
    /// # Errors
    /// `Unavailable`.
    pub fn check_without(required: &[String]) -> Result<(), Error> {
        check_present(required, &BTreeSet::new())
    }

    /// Lists the plugins in the order in which they are called.
    pub fn list(&self) -> Vec<PluginInfo> {
        let info = |plugin: &Arc<Plugin>| PluginInfo {
            name: plugin.name.clone(),
            pid: plugin.pid,
            launched: plugin.launched,
            synchronized: plugin.is_usable(),
        };
        self.lock().iter().map(info).collect()
    }

    /// Returns the configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Adds a configured plugin to the list and synchronizes it. One that does not answer in time is removed again.
    pub(crate) async fn join(self: &Arc<Self>, plugin: &Arc<Plugin>) -> Result<(), String> {
        let host = self.host().ok_or("the engine is not ready")?;
        let turn = plugin.first_turn();
        let known = {
            let mut list = self.lock();
            if list.len() >= PLUGINS_MAX {
                return Err(format!("{PLUGINS_MAX} plugins are registered; more are not allowed"));
            }
            self.count.fetch_add(1, Ordering::SeqCst);
            let known = host.known();
            plugin.set_known(known.pods.iter().chain(&known.containers).cloned().collect());
            let place = list.partition_point(|other| other.index <= plugin.index);
            list.insert(place, Arc::clone(plugin));
            known
        };
        self.remove_when_closed(plugin);
        let timeout = self.config.request_timeout;
        let described = tokio::time::timeout(timeout, host.describe(known)).await;
        let synchronized = match described {
            Ok((pods, containers)) => plugin.synchronize(pods, containers, timeout).await,
            Err(_) => Err("the pods and containers could not be listed in time".to_owned()),
        };
        drop(turn);
        let updates = synchronized.inspect_err(|why| plugin.close(&format!("synchronize it: {why}")))?;
        self.changed.send_replace(());
        let failed = host.update(updates).await;
        for update in failed.iter().filter(|update| !update.ignore_failure) {
            tracing::warn!(
                plugin = plugin.name,
                container = update.container_id,
                "an update that a plugin requested when it was synchronized failed"
            );
        }
        Ok(())
    }

    fn remove_when_closed(self: &Arc<Self>, plugin: &Arc<Plugin>) {
        let (plugins, plugin) = (Arc::downgrade(self), Arc::clone(plugin));
        tokio::spawn(async move {
            plugin.closed().await;
            let Some(plugins) = plugins.upgrade() else { return };
            {
                let mut list = plugins.lock();
                list.retain(|other| !Arc::ptr_eq(other, &plugin));
                plugins.count.store(list.len(), Ordering::SeqCst);
            }
            plugins.changed.send_replace(());
            tracing::info!(plugin = plugin.name, "an NRI plugin is gone");
        });
    }

    /// Disconnects all plugins.
    pub fn stop(&self) {
        let plugins = self.lock().clone();
        plugins.iter().for_each(|plugin| plugin.close("the engine is shutting down"));
    }
}

impl Drop for Plugins {
    fn drop(&mut self) {
        self.stop();
    }
}
