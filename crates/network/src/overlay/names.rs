//! Names of pods in a named overlay: each node publishes those of its pods, and reads those of others.
//!
//! `<prefix>/LIST/names/<address of the node>` has the names and addresses of a node's pods, with a lease that ends soon after
//! its daemon. If etcd does not respond, names of other nodes stay as they are.

use std::{
    collections::BTreeSet,
    net::IpAddr,
    sync::{Arc, Weak},
    time::Duration,
};

use ::overlay::{EtcdSettings, Settings};
use etcd::{Change, Client, Lease};
use rtnl::subnet::Subnet;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep, sleep_until};

use super::agent;
use crate::{Endpoint, NameTable, network::Inner};

/// Time for which names of a node are known whose daemon is down. An upgrade of the daemon takes less.
const LEASE_TTL: Duration = Duration::from_secs(300);
/// Interval at which the lease is renewed.
const RENEWAL: Duration = Duration::from_secs(LEASE_TTL.as_secs() / 5);
/// Shortest time between two reads, however often nodes change their names.
const INTERVAL_MIN: Duration = Duration::from_millis(100);
/// Time between two attempts after a failure, at first and later.
const RETRY_MIN: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(15);
/// Longest value of a key in bytes. etcd accepts 1.5 MiB unless configured.
const VALUE_MAX: usize = 1 << 20;
/// Maximum number of names of a pod that are accepted from another node.
const NAMES_MAX: usize = 128;
/// Longest name in bytes, as in DNS (RFC 1035).
const NAME_MAX: usize = 253;

/// A pod, as it is in etcd.
#[derive(Serialize, Deserialize)]
struct Published {
    names: Vec<String>,
    addresses: Vec<IpAddr>,
}

/// Exchanges names until the network is gone, or the task is aborted.
pub(super) async fn run(network: Weak<Inner>, settings: Settings, etcd: EtcdSettings) {
    let prefix = prefix(&etcd, &settings.name);
    let mut exchange = Exchange {
        settings,
        prefix,
        node: String::new(),
        lease: None,
        renewed: Instant::now(),
        published: None,
        revision: 0,
    };
    let (mut delay, mut last) = (RETRY_MIN, String::new());
    loop {
        let Err(reason) = exchange.follow(&network, &etcd, &mut delay).await else { return };
        if reason != last {
            let network = exchange.settings.name.as_str();
            tracing::warn!(network, reason, "names of pods are not exchanged with other nodes; trying again");
            last = reason;
        }
        sleep(delay).await;
        delay = (2 * delay).min(RETRY_MAX);
    }
}

fn prefix(etcd: &EtcdSettings, network: &str) -> String {
    format!("{}/{network}/names/", etcd.prefix)
}

/// Returns the key of a node's names.
pub(super) fn key(etcd: &EtcdSettings, network: &str, node: IpAddr) -> String {
    format!("{}{node}", prefix(etcd, network))
}

struct Exchange {
    settings: Settings,
    prefix: String,
    /// Address of this node; empty at first.
    node: String,
    lease: Option<Lease>,
    /// When the lease was granted or renewed.
    renewed: Instant,
    /// Value of the key of this node; `None` if it is not known.
    published: Option<Vec<u8>>,
    /// Revision of the cluster up to which names were read.
    revision: i64,
}

impl Exchange {
    /// Exchanges names until something fails, or the network is gone.
    async fn follow(&mut self, network: &Weak<Inner>, etcd: &EtcdSettings, delay: &mut Duration) -> Result<(), String> {
        let client = agent::client(etcd).await?;
        let node = agent::node(self.settings.node).await?.to_string();
        if self.node != node {
            // What was published for another address of this node ends.
            if let Some(lease) = self.lease.take() {
                let _ = client.revoke(lease).await;
            }
            self.node.clone_from(&node);
        }
        // The cluster may have been restored from a backup.
        (self.published, self.revision) = (None, 0);
        let mut has_changed = true;
        loop {
            let Some(inner) = network.upgrade() else { return Ok(()) };
            let names = Arc::clone(&inner.names);
            drop(inner);
            let mut changes = names.changes();
            self.publish(&client, &names, &node).await?;
            if has_changed {
                self.read(&client, &names, &node).await.map_err(|error| error.to_string())?;
            }
            *delay = RETRY_MIN;
            has_changed = tokio::select! {
                changed = client.wait_for_change(&self.prefix, self.revision) => {
                    changed.map_err(|error| error.to_string())?;
                    true
                }
                _ = changes.changed() => false,
                () = sleep_until(self.renewed + RENEWAL) => false,
            };
            sleep(INTERVAL_MIN).await;
        }
    }

    /// Publishes the names of this node if they have changed, and renews the lease.
    async fn publish(&mut self, client: &Client, names: &NameTable, node: &str) -> Result<(), String> {
        let value = encode(names.local(&self.settings.name))?;
        if let Some(lease) = self.lease
            && self.renewed.elapsed() >= RENEWAL
        {
            match client.renew(lease).await.map_err(|error| error.to_string())? {
                true => self.renewed = Instant::now(),
                false => self.lease = None,
            }
        }
        if self.lease.is_some() && self.published.as_ref() == Some(&value) {
            return Ok(());
        }
        let written = self.write(client, &format!("{}{node}", self.prefix), &value).await;
        if written.is_err() {
            (self.lease, self.published) = (None, None);
        }
        written.map_err(|error| error.to_string())?;
        self.published = Some(value);
        Ok(())
    }

    async fn write(&mut self, client: &Client, key: &str, value: &[u8]) -> Result<(), etcd::Error> {
        let lease = match self.lease {
            Some(lease) => lease,
            None => {
                self.renewed = Instant::now();
                *self.lease.insert(client.grant(LEASE_TTL).await?)
            }
        };
        match value == EMPTY {
            // An earlier daemon may have left one.
            true => client.change(&[], &[Change::Delete(key)]).await.map(drop),
            false => client.put(key, value, lease).await,
        }
    }

    /// Reads what other nodes have changed.
    async fn read(&mut self, client: &Client, names: &NameTable, node: &str) -> Result<(), etcd::Error> {
        let mut changed = client.changed(&self.prefix, self.revision).await?;
        if changed.revision < self.revision {
            // The cluster was restored from a backup.
            changed = client.changed(&self.prefix, 0).await?;
        }
        let network = self.settings.name.as_str();
        let source = |key: &[u8]| {
            let text = std::str::from_utf8(key).ok()?.strip_prefix(&self.prefix)?;
            let address: IpAddr = text.parse().ok()?;
            (address.to_string() == text && text != node).then(|| text.to_owned())
        };
        let present: BTreeSet<String> = changed.keys.iter().filter_map(|key| source(key)).collect();
        let decoded = changed.entries.iter().filter_map(|entry| {
            let source = source(&entry.key)?;
            let endpoints = decode(&entry.value, &self.settings.networks).unwrap_or_else(|reason| {
                tracing::warn!(network, node = source, reason, "the names of a node's pods are not valid");
                Vec::new()
            });
            Some((source, endpoints))
        });
        offload::hand_over(|| names.update(network, decoded.collect(), &present));
        self.revision = changed.revision;
        Ok(())
    }
}

/// The value of a node without pods.
const EMPTY: &[u8] = b"[]";

fn encode(endpoints: Vec<Endpoint>) -> Result<Vec<u8>, String> {
    let published = |Endpoint { mut names, addresses }: Endpoint| {
        names.truncate(NAMES_MAX);
        Published { names, addresses }
    };
    let all: Vec<Published> = endpoints.into_iter().map(published).collect();
    let value = serde_json::to_vec(&all).map_err(|error| error.to_string())?;
    match value.len() {
        0..=VALUE_MAX => Ok(value),
        length => {
            Err(format!("the names of the pods of this node have {length} bytes; at most {VALUE_MAX} are published"))
        }
    }
}

/// Returns the pods of another node. Addresses must be those of the network.
fn decode(value: &[u8], networks: &[Subnet]) -> Result<Vec<Endpoint>, String> {
    if value.len() > VALUE_MAX {
        return Err(format!("longer than {VALUE_MAX} bytes"));
    }
    let all: Vec<Published> = serde_json::from_slice(value).map_err(|error| error.to_string())?;
    let is_name =
        |name: &String| !name.is_empty() && name.len() <= NAME_MAX && name.bytes().all(|b| b.is_ascii_graphic());
    let is_within = |address: &IpAddr| networks.iter().any(|network| network.contains(*address));
    // One pod with something else hides none of the others.
    let endpoint = |Published { mut names, mut addresses }: Published| {
        names.retain(is_name);
        names.truncate(NAMES_MAX);
        addresses.retain(is_within);
        (!names.is_empty() && !addresses.is_empty()).then_some(Endpoint { names, addresses })
    };
    Ok(all.into_iter().filter_map(endpoint).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(name: &str, address: &str) -> Endpoint {
        Endpoint { names: vec![name.into()], addresses: vec![address.parse().unwrap()] }
    }

    #[test]
    fn what_is_published_is_read_and_nothing_else() {
        let networks = ["10.1.0.0/16".parse().unwrap()];
        let all = vec![endpoint("web", "10.1.2.3"), endpoint("db", "10.1.2.4")];
        assert_eq!(decode(&encode(all.clone()).unwrap(), &networks).unwrap(), all);
        assert_eq!(encode(Vec::new()).unwrap(), EMPTY);
        let mut mixed = vec![endpoint("web", "10.2.0.1"), endpoint("a b", "10.1.0.1"), endpoint("", "10.1.0.1")];
        mixed.extend(all.clone());
        assert_eq!(decode(&encode(mixed).unwrap(), &networks).unwrap(), all);
        for wrong in [b"{".to_vec(), vec![b' '; VALUE_MAX + 1]] {
            assert!(decode(&wrong, &networks).is_err());
        }
        let many = Endpoint { names: vec!["a".into(); NAMES_MAX + 1], addresses: all[0].addresses.clone() };
        assert_eq!(decode(&encode(vec![many]).unwrap(), &networks).unwrap()[0].names.len(), NAMES_MAX);
        assert!(encode(vec![endpoint(&"x".repeat(VALUE_MAX), "10.1.0.1")]).is_err());
    }
}
