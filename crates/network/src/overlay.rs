//! Overlays: an agent for each keeps the configuration of the kernel that of the other nodes. If these are in etcd, it also
//! keeps the subnet of this node there.
//!
//! Pods are attached by the plugin type `overlay`, which reads what the agent recorded, so no pod waits for etcd. If etcd
//! does not respond, everything stays as it is.

mod agent;
mod keys;
mod subnet;

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
    time::Duration,
};

use ::overlay::Settings;
use tokio::task::JoinHandle;

use crate::{Network, network::Inner};

/// Interval at which the configurations of networks are compared with the agents.
const INTERVAL: Duration = Duration::from_secs(2);
/// Type of the plugin.
const TYPE: &str = "overlay";

/// The agents that run, by the settings that they were started with.
#[derive(Default)]
struct Agents(HashMap<String, (Settings, JoinHandle<()>)>);

impl Network {
    /// Runs an agent for every overlay of the configurations, for as long as the network exists.
    /// Spawn it once.
    pub fn run_overlays(&self) -> impl Future<Output = ()> + Send + 'static {
        let network = Arc::downgrade(&self.inner);
        async move {
            let mut agents = Agents::default();
            while let Some(inner) = network.upgrade() {
                let all = Arc::clone(&inner);
                // The files are read again only if they have changed.
                if let Ok(settings) = offload::blocking(move || all.overlays()).await {
                    agents.update(&network, settings);
                }
                drop(inner);
                tokio::time::sleep(INTERVAL).await;
            }
        }
    }
}

impl Inner {
    /// Returns the overlays of all configurations.
    fn overlays(&self) -> Vec<Settings> {
        let mut all = Vec::new();
        for chain in self.directory.all() {
            for plugin in chain.plugins().filter(|plugin| plugin.kind == TYPE) {
                let mut config = plugin.config.clone();
                config.insert("name".into(), chain.name.as_str().into());
                match Settings::parse(&config) {
                    Ok(settings) => all.push(settings),
                    Err(error) => self.agent_states.fail(&chain.name, &error.to_string()),
                }
            }
        }
        all
    }
}

impl Inner {
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
    /// Starts agents of new networks, restarts those whose settings have changed, and stops those whose network is gone. What
    /// they configured stays: pods may use it.
    fn update(&mut self, network: &Weak<Inner>, settings: Vec<Settings>) {
        let wanted: HashMap<String, Settings> =
            settings.into_iter().map(|settings| (settings.name.clone(), settings)).collect();
        self.0.retain(|name, (settings, task)| {
            let is_current = wanted.get(name).is_some_and(|wanted| wanted == settings);
            if !is_current {
                tracing::info!(network = name, "the overlay's configuration has changed or is gone; its agent stops");
                task.abort();
            }
            is_current
        });
        for (name, settings) in wanted {
            let start = || {
                let task = offload::spawn(agent::run(network.clone(), settings.clone()));
                (settings, task)
            };
            self.0.entry(name).or_insert_with(start);
        }
    }
}

impl Drop for Agents {
    fn drop(&mut self) {
        self.0.values().for_each(|(_, task)| task.abort());
    }
}
