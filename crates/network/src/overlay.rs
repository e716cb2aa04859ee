//! Overlays: an agent for each keeps the configuration of the kernel that of the other nodes. If these are in etcd, it also
//! keeps the subnet of this node there.
//!
//! Pods are attached by the plugin type `overlay`, which reads what the agent recorded, so no pod waits for etcd. If etcd
//! does not respond, everything stays as it is.

mod agent;
mod kernel;
mod keys;
mod subnet;

use std::{
    collections::{BTreeMap, HashSet},
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use ::overlay::{Settings, Source};
use etcd::Lease;
use tokio::task::JoinHandle;

use crate::{Network, network::Inner};

/// Interval at which the configurations of networks are compared with the agents.
const INTERVAL: Duration = Duration::from_secs(2);
/// Type of the plugin.
const TYPE: &str = "overlay";

/// The agents, by the names of networks.
#[derive(Default)]
struct Agents {
    running: BTreeMap<String, Agent>,
    /// Networks without a configuration, which are removed when no pod uses them.
    retired: BTreeMap<String, Settings>,
}

struct Agent {
    settings: Settings,
    task: JoinHandle<()>,
    stopped: Arc<AtomicBool>,
}

/// The overlays of all configurations.
struct Configured {
    overlays: Vec<Settings>,
    /// Whether all configurations could be read. If not, an overlay that is missing may be in one that could not.
    is_complete: bool,
}

impl Network {
    /// Runs an agent for every overlay of the configurations, for as long as the network exists. Spawn it once.
    pub fn run_overlays(&self) -> impl Future<Output = ()> + Send + 'static {
        let network = Arc::downgrade(&self.inner);
        async move {
            let mut agents = Agents::default();
            while let Some(inner) = network.upgrade() {
                let all = Arc::clone(&inner);
                let running: HashSet<String> = agents.running.keys().cloned().collect();
                // The files are read again only if they have changed.
                if let Ok(configured) = offload::blocking(move || all.overlays(&running)).await {
                    agents.update(&network, &inner, configured);
                }
                agents.remove_unused(&inner).await;
                drop(inner);
                tokio::time::sleep(INTERVAL).await;
            }
        }
    }
}

impl Inner {
    /// Returns the overlays of all configurations. Of two with one name or identifier the one that runs already counts, else
    /// the first one.
    fn overlays(&self, running: &HashSet<String>) -> Configured {
        let (mut chains, is_complete) = self.directory.all();
        chains.sort_by_key(|chain| !running.contains(&chain.name));
        let mut configured = Configured { overlays: Vec::new(), is_complete };
        for chain in chains {
            for plugin in chain.plugins().filter(|plugin| plugin.kind == TYPE) {
                let mut config = plugin.config.clone();
                config.insert("name".into(), chain.name.as_str().into());
                match Settings::parse(&config) {
                    Ok(settings) => self.add_overlay(&mut configured.overlays, settings),
                    Err(error) => {
                        self.agent_states.fail(&chain.name, &error.to_string());
                        configured.is_complete = false;
                    }
                }
            }
        }
        configured
    }

    fn add_overlay(&self, overlays: &mut Vec<Settings>, settings: Settings) {
        match overlays.iter().find(|other| other.name == settings.name || other.id == settings.id) {
            Some(other) if *other == settings => {}
            Some(other) => {
                let reason = format!("vni {} or the name is also that of the network {}", settings.id, other.name);
                self.agent_states.fail(&format!("{} (another one)", settings.name), &reason);
            }
            None => overlays.push(settings),
        }
    }

    /// Notes the outcome of an attempt of an agent. After the first success the plugins' `STATUS` is not left to the next
    /// reconciliation: pods may wait for it.
    async fn note(&self, network: &str, outcome: Result<(), String>) {
        match outcome {
            Err(reason) => self.agent_states.fail(network, &reason),
            Ok(()) if self.agent_states.succeed(network) => self.query_plugins().await,
            Ok(()) => {}
        }
    }
}

impl Agents {
    /// Starts agents of new networks, and restarts those whose settings have changed or that ended. Agents whose network is
    /// gone are stopped.
    fn update(&mut self, network: &Weak<Inner>, inner: &Inner, configured: Configured) {
        let required: BTreeMap<String, Settings> =
            configured.overlays.into_iter().map(|settings| (settings.name.clone(), settings)).collect();
        let obsolete = self.running.extract_if(.., |name, agent| match required.get(name) {
            Some(settings) => *settings != agent.settings || agent.task.is_finished(),
            None => configured.is_complete,
        });
        for (name, agent) in obsolete.collect::<Vec<_>>() {
            agent.stop();
            inner.agent_states.forget(&name);
            match required.get(&name) {
                Some(settings) if settings.id == agent.settings.id => {}
                _ => {
                    tracing::info!(network = name, "the overlay is not configured any longer");
                    self.retired.insert(format!("{name} {}", agent.settings.id), agent.settings.clone());
                }
            }
        }
        for (name, settings) in required {
            self.retired.retain(|_, retired| (&retired.name, retired.id) != (&settings.name, settings.id));
            if let Some(other) = self.retired.values().find(|retired| retired.id == settings.id) {
                let reason = format!("vni {} is that of the network {}, which pods still use", settings.id, other.name);
                inner.agent_states.fail(&name, &reason);
                continue;
            }
            self.running.entry(name).or_insert_with(|| Agent::start(network, settings));
        }
    }

    /// Removes what overlays without a configuration left, if no pod uses them.
    async fn remove_unused(&mut self, inner: &Arc<Inner>) {
        let all: Vec<(String, Settings)> =
            self.retired.iter().map(|(key, settings)| (key.clone(), settings.clone())).collect();
        for (key, settings) in all {
            let has_successor = self.running.contains_key(&settings.name);
            match remove(inner, &settings, has_successor).await {
                Ok(true) => drop(self.retired.remove(&key)),
                Ok(false) => {}
                Err(reason) => tracing::warn!(network = settings.name, reason, "remove the overlay; trying again"),
            }
        }
    }
}

/// Removes an overlay from the kernel, and its claim from etcd, which expires in any case. Returns false if a pod uses it.
/// `has_successor` states that the network has another identifier now: record and claim are those of its agent.
async fn remove(inner: &Arc<Inner>, settings: &Settings, has_successor: bool) -> Result<bool, String> {
    let (of_kernel, inner) = (settings.clone(), Arc::clone(inner));
    let is_used = move |name: &str| inner.attached_networks().map_or(true, |used| used.contains(name));
    let removed = kernel::in_kernel(move |socket| kernel::clean_up(socket, &of_kernel, has_successor, is_used)).await?;
    let Some(lease) = removed else { return Ok(false) };
    if let Source::Etcd(etcd) = &settings.source
        && lease != 0
        && let Ok(client) = agent::client(etcd).await
    {
        let lease = Lease { id: lease, ttl: ::overlay::LEASE_TTL };
        let revoked = client.revoke(lease).await;
        if let Err(error) = revoked.map_err(|error| error.to_string()) {
            tracing::info!(
                network = settings.name,
                error,
                "the subnet of this node stays claimed until its lease expires"
            );
        }
    }
    tracing::info!(network = settings.name, "the overlay is removed from this node");
    Ok(true)
}

impl Agent {
    fn start(network: &Weak<Inner>, settings: Settings) -> Self {
        let stopped = Arc::new(AtomicBool::new(false));
        let task = offload::spawn(agent::run(network.clone(), settings.clone(), Arc::clone(&stopped)));
        Self { settings, task, stopped }
    }

    /// Stops the agent. Work on a thread that has begun ends without an effect.
    fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.task.abort();
    }
}

impl Drop for Agents {
    fn drop(&mut self) {
        self.running.values().for_each(Agent::stop);
    }
}

impl Inner {
    /// Returns the names of networks with an attachment.
    fn attached_networks(&self) -> Result<HashSet<String>, crate::Error> {
        let mut names = HashSet::new();
        for entry in self.ledger.all()? {
            match entry.record {
                Some(record) => names.extend(record.network().map(str::to_owned)),
                // A damaged record may be one of any network.
                None => return Err(crate::Error::config("network", "a record of an attachment is damaged")),
            }
        }
        Ok(names)
    }
}
