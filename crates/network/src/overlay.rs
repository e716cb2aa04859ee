//! Overlays: an agent for each keeps the configuration of the kernel that of the other nodes. If these are in etcd, it also
//! keeps the subnet of this node there.
//!
//! Pods are attached by the plugin type `overlay`, which reads what the agent recorded, so no pod waits for etcd. If etcd
//! does not respond, everything stays as it is.
//!
//! Overlays are those of CNI configurations, and those that people create by name. The nodes share definitions of the latter,
//! and names of pods, in etcd, too ([`shared`], [`names`]).

pub(crate) mod agent;
mod kernel;
mod keys;
mod names;
pub(crate) mod shared;
mod subnet;

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    net::IpAddr,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use ::overlay::{EtcdSettings, Overlay, Settings, Source};
use etcd::{Change, Lease};
use tokio::task::JoinHandle;

use self::{keys::Keys, shared::Definitions, subnet::Claims};
use crate::{Driver, Network, NetworkDefinition, cni::Chain, network::Inner};

/// Interval at which the configurations of networks are compared with the agents.
const INTERVAL: Duration = Duration::from_secs(2);
/// Longest time that requests to etcd may take when a network is removed.
const WITHDRAWAL_TIMEOUT: Duration = Duration::from_secs(15);
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
    /// Exchanges names of pods, if people created the network.
    names: Option<JoinHandle<()>>,
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
                let running: HashSet<String> = agents.running.keys().cloned().collect();
                // The files are read again only if they have changed: nearly always this is one system call for each, which
                // does not need a thread.
                let configured = offload::in_place(|| inner.overlays(&running));
                agents.update(&network, &inner, configured);
                agents.remove_unused(&inner).await;
                inner.overlay_passes.complete(agents.networks());
                let passes = Arc::clone(&inner.overlay_passes);
                drop(inner);
                passes.requested(INTERVAL).await;
            }
        }
    }
}

impl Inner {
    /// Returns the overlays of all configurations. Of two with one name or identifier the one that runs already counts, else
    /// the first one.
    fn overlays(&self, running: &HashSet<String>) -> Configured {
        let (mut chains, is_complete) = self.directory.all();
        chains.extend(self.named_overlays());
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

    /// Returns the overlays that people remove.
    fn leaving_overlays(&self) -> Vec<Settings> {
        let leaving = self.named.leaving().into_iter().filter(|definition| definition.driver == Driver::Overlay);
        leaving.filter_map(|definition| self.settings_of(&definition).ok()).collect()
    }

    /// Returns the overlays that people created.
    fn named_overlays(&self) -> Vec<Arc<Chain>> {
        let mut chains = Vec::new();
        for definition in self.named.staying().iter().filter(|definition| definition.driver == Driver::Overlay) {
            match self.list_of(definition, true).and_then(Chain::parse) {
                Ok(chain) => chains.push(Arc::new(chain)),
                Err(reason) => self.agent_states.fail(&definition.list_name(), &reason),
            }
        }
        chains
    }

    fn add_overlay(&self, overlays: &mut Vec<Settings>, settings: Settings) {
        match overlays.iter().find(|other| other.name == settings.name || clash(other, &settings)) {
            Some(other) if *other == settings => {}
            Some(other) => {
                let reason = match other.name == settings.name {
                    true => "another configuration has the name".to_owned(),
                    false => conflict(&settings, other),
                };
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

/// Reports whether one node cannot have both overlays.
fn clash(one: &Settings, other: &Settings) -> bool {
    one.id == other.id || (one.encrypted || other.encrypted) && one.port == other.port
}

fn conflict(settings: &Settings, other: &Settings) -> String {
    match settings.id == other.id {
        true => format!("vni {} is that of the network {} of this node", settings.id, other.name),
        false => format!(
            "port {} is that of the network {} of this node; choose another vni or port",
            settings.port, other.name
        ),
    }
}

impl Inner {
    /// Returns the settings of an overlay that people created.
    pub(crate) fn settings_of(&self, definition: &NetworkDefinition) -> Result<Settings, String> {
        let list = self.list_of(definition, true)?;
        let mut config = list["plugins"][0].as_object().cloned().unwrap_or_default();
        config.insert("name".into(), list["name"].clone());
        Settings::parse(&config).map_err(|error| error.to_string())
    }

    /// Refuses settings with which the agent of a node with this address could not start.
    pub(crate) fn check_overlay(&self, settings: &Settings, node: IpAddr) -> Result<(), String> {
        let Source::Etcd(etcd) = &settings.source else { return Ok(()) };
        let subnets = Keys::new(settings, etcd).subnets_of(0);
        Overlay::new(settings.definition(node, subnets)).map_err(|error| error.to_string())?;
        let others = self.overlays(&HashSet::new()).overlays;
        match others.iter().find(|other| other.name != settings.name && clash(other, settings)) {
            None => Ok(()),
            Some(other) => Err(conflict(settings, other)),
        }
    }
}

impl Agents {
    /// Starts agents of new networks, and restarts those whose settings have changed or that ended. Agents whose network is
    /// gone are stopped.
    fn update(&mut self, network: &Weak<Inner>, inner: &Inner, configured: Configured) {
        let leaving = inner.leaving_overlays();
        let required: BTreeMap<String, Settings> =
            configured.overlays.into_iter().map(|settings| (settings.name.clone(), settings)).collect();
        let obsolete = self.running.extract_if(.., |name, agent| match required.get(name) {
            Some(settings) => *settings != agent.settings || agent.task.is_finished(),
            None => configured.is_complete || leaving.iter().any(|settings| settings.name == *name),
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
        // Also what an agent of an earlier daemon left, or one that had not claimed a subnet yet.
        for settings in leaving {
            self.retired.entry(format!("{} {}", settings.name, settings.id)).or_insert(settings);
        }
        for (name, settings) in required {
            self.retired.retain(|_, retired| (&retired.name, retired.id) != (&settings.name, settings.id));
            if let Some(other) = self.retired.values().find(|retired| retired.id == settings.id) {
                let reason = format!("vni {} is that of the network {}, which pods still use", settings.id, other.name);
                inner.agent_states.fail(&name, &reason);
                continue;
            }
            self.running.entry(name).or_insert_with(|| Agent::start(network, inner, settings));
        }
    }

    /// Returns the names of networks that the node has, also of those that are being removed.
    fn networks(&self) -> BTreeSet<String> {
        self.running.keys().cloned().chain(self.retired.values().map(|settings| settings.name.clone())).collect()
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
    let (of_kernel, of_ledger) = (settings.clone(), Arc::clone(inner));
    let is_used = move |name: &str| of_ledger.attached_networks().map_or(true, |used| used.contains(name));
    let removed = kernel::in_kernel(move |socket| kernel::clean_up(socket, &of_kernel, has_successor, is_used)).await?;
    let Some(lease) = removed else { return Ok(false) };
    if let Source::Etcd(etcd) = &settings.source {
        let withdrawn = withdraw(inner, settings, etcd, lease);
        let withdrawn = tokio::time::timeout(WITHDRAWAL_TIMEOUT, withdrawn).await;
        if let Err(reason) = withdrawn.unwrap_or_else(|_| Err("etcd does not respond".to_owned())) {
            tracing::warn!(
                network = settings.name,
                reason,
                "claims of this node stay in etcd until they expire; a definition without nodes is removed by creating and \
                 removing the network again"
            );
        }
    }
    inner.names.forget(&settings.name);
    tracing::info!(network = settings.name, "the overlay is removed from this node");
    Ok(true)
}

/// Withdraws what this node has in etcd for an overlay: its claim, and for one that people created everything that it may
/// have written, and the definition if this was the last node that had it.
async fn withdraw(inner: &Inner, settings: &Settings, etcd: &EtcdSettings, lease: i64) -> Result<(), String> {
    let definition = inner.named.list().into_iter().find(|definition| definition.list_name() == settings.name);
    if lease == 0 && definition.is_none() {
        return Ok(());
    }
    let client = agent::client(etcd).await?;
    let text = |error: etcd::Error| error.to_string();
    if lease != 0 {
        client.revoke(Lease { id: lease, ttl: ::overlay::LEASE_TTL }).await.map_err(text)?;
    }
    let Some(definition) = definition else { return Ok(()) };
    let node = agent::node(settings.node).await?;
    let keys = Keys::new(settings, etcd);
    let (joining, names) = (shared::joining_key(keys.subnets(), node), names::key(etcd, &settings.name, node));
    client.change(&[], &[Change::Delete(&joining), Change::Delete(&names)]).await.map_err(text)?;
    // A daemon that was killed may have claimed without a record.
    for claim in Claims::read(&client, &keys).await.map_err(text)?.all {
        if claim.node == node {
            client.delete(&keys.subnet(claim.index), claim.revision).await.map_err(text)?;
        }
    }
    let deleted = Definitions::new(&client, etcd, node).delete_unused(&definition.name, &definition.id).await;
    if !deleted.map_err(|error| error.to_string())? {
        tracing::info!(network = definition.name, "other nodes have the network, so it stays in etcd");
    }
    Ok(())
}

impl Agent {
    fn start(network: &Weak<Inner>, inner: &Inner, settings: Settings) -> Self {
        let stopped = Arc::new(AtomicBool::new(false));
        let is_named = inner.named.staying().iter().any(|definition| definition.list_name() == settings.name);
        let names = match &settings.source {
            Source::Etcd(etcd) if is_named => {
                Some(tokio::spawn(names::run(network.clone(), settings.clone(), etcd.clone())))
            }
            _ => None,
        };
        let task = offload::spawn(agent::run(network.clone(), settings.clone(), Arc::clone(&stopped)));
        Self { settings, task, names, stopped }
    }

    /// Stops the agent. Work on a thread that has begun ends without an effect.
    fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.task.abort();
        self.names.iter().for_each(JoinHandle::abort);
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
