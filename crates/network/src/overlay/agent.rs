//! The agent of one overlay. With nodes in etcd:
//!
//! ```text
//! claim a subnet → ┌ read all nodes → record, configure the kernel → wait for a change ┐
//!                  └───────────────────────────────────────────────────────────────────┘
//! ```

use std::{
    net::IpAddr,
    sync::{Arc, Weak, atomic::AtomicBool},
    time::Duration,
};

use ::overlay::{EtcdSettings, LEASE_TTL, Peer, PublicKey, Record, Settings, Source, boot_time, local_addresses};
use etcd::{Change, Client, Lease, Options};
use tokio::time::Instant;

use super::{
    kernel::{self, in_kernel},
    keys::{Claim, Keys, NodeIdentity},
    shared::{self, Definitions, Shared},
    subnet::{self, Claims, Last, Own},
};
use crate::network::Inner;

/// Longest time between two comparisons of all nodes with the kernel: a change that a watch missed takes effect then, and
/// what an administrator deleted returns.
const RESCAN: Duration = Duration::from_secs(30);
/// Shortest time between two of them, however often nodes change their keys.
const INTERVAL_MIN: Duration = Duration::from_millis(500);
/// Time between two attempts after a failure, at first and later.
const RETRY_MIN: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(15);
/// Time until a node claims again whose address another machine has, too.
const DUPLICATE_DELAY: Duration = Duration::from_secs(60);
/// Interval at which the lease is renewed.
const RENEWAL: Duration = Duration::from_secs(LEASE_TTL.as_secs() / 24);

/// An agent's failure.
struct Failure {
    reason: String,
    /// Time until the next attempt, if it is not that of other failures.
    delay: Option<Duration>,
}

impl From<String> for Failure {
    fn from(reason: String) -> Self {
        Self { reason, delay: None }
    }
}

impl From<etcd::Error> for Failure {
    fn from(error: etcd::Error) -> Self {
        error.to_string().into()
    }
}

/// Runs the agent until the network is gone, or the task is aborted. `stopped` is set before the latter.
pub(super) async fn run(network: Weak<Inner>, settings: Settings, stopped: Arc<AtomicBool>) {
    match settings.source.clone() {
        Source::Nodes(_) => keep(network, settings, stopped).await,
        Source::Etcd(etcd) => follow(network, settings, etcd, stopped).await,
    }
}

/// Keeps the kernel's configuration that of the nodes in the configuration.
async fn keep(network: Weak<Inner>, settings: Settings, stopped: Arc<AtomicBool>) {
    loop {
        let (of_kernel, stopped) = (settings.clone(), Arc::clone(&stopped));
        let outcome = in_kernel(move |socket| kernel::keep(socket, &of_kernel, &stopped)).await;
        let Some(inner) = network.upgrade() else { return };
        inner.note(&settings.name, outcome).await;
        drop(inner);
        tokio::time::sleep(RESCAN).await;
    }
}

/// Follows the nodes in etcd.
async fn follow(network: Weak<Inner>, settings: Settings, etcd: EtcdSettings, stopped: Arc<AtomicBool>) {
    let keys = Keys::new(&settings, &etcd);
    let mut agent = Agent { settings, keys, own: None, key: None, renewed: 0, refused: String::new(), stopped };
    let mut delay = RETRY_MIN;
    loop {
        let Err(failure) = agent.follow(&network, &etcd, &mut delay).await else { return };
        let Some(inner) = network.upgrade() else { return };
        inner.note(&agent.settings.name, Err(failure.reason)).await;
        drop(inner);
        // What an administrator deleted, or a killed daemon did not complete, does not wait for etcd.
        let (settings, stopped) = (agent.settings.clone(), Arc::clone(&agent.stopped));
        if let Err(reason) = in_kernel(move |socket| kernel::keep(socket, &settings, &stopped)).await {
            tracing::debug!(network = agent.settings.name, reason, "keep the overlay as it is recorded");
        }
        tokio::time::sleep(failure.delay.unwrap_or(delay)).await;
        delay = (2 * delay).min(RETRY_MAX);
    }
}

struct Agent {
    settings: Settings,
    keys: Keys,
    own: Option<Own>,
    /// Public key of this node, if the overlay is encrypted.
    key: Option<PublicKey>,
    /// When the lease was renewed last, as `boot_time`.
    renewed: u64,
    /// Nodes that were refused last, for the log.
    refused: String,
    stopped: Arc<AtomicBool>,
}

impl Agent {
    /// Follows the nodes until something fails, or the network is gone.
    async fn follow(
        &mut self,
        network: &Weak<Inner>,
        etcd: &EtcdSettings,
        delay: &mut Duration,
    ) -> Result<(), Failure> {
        let client = client(etcd).await?;
        let node = node(self.settings.node).await?;
        let mut renewal = Instant::now();
        loop {
            let start = Instant::now();
            let key = match self.public_key(node).await {
                Ok(key) => key,
                Err(reason) => {
                    // What is wrong with the endpoint may last longer than the lease.
                    let lease = match self.own {
                        Some(own) => own.lease.id,
                        None => self.last().await?.lease,
                    };
                    if lease != 0 && client.renew(Lease { id: lease, ttl: LEASE_TTL }).await? {
                        self.renewed = boot_time();
                    }
                    return Err(reason.into());
                }
            };
            if key != self.key {
                // The endpoint was deleted, and its key with it: the claim has to have the new one.
                (self.own, self.key, renewal) = (None, key, start);
            }
            if renewal <= start {
                self.renew(network, &client, node).await?;
                renewal = start + RENEWAL;
            }
            let claims = Claims::read(&client, &self.keys).await?;
            let own = self.own(&claims, node)?;
            let revision = claims.revision;
            self.configure(node, own, claims).await?;
            let Some(inner) = network.upgrade() else { return Ok(()) };
            inner.note(&self.settings.name, Ok(())).await;
            drop(inner);
            *delay = RETRY_MIN;
            let wait = RESCAN.min(renewal.saturating_duration_since(Instant::now()));
            let changed = client.wait_for_change(self.keys.subnets(), revision);
            if let Ok(changed) = tokio::time::timeout(wait, changed).await {
                changed?;
            }
            tokio::time::sleep_until(start + INTERVAL_MIN).await;
        }
    }

    /// Returns the claim of this node if it still has it.
    fn own(&mut self, claims: &Claims, node: IpAddr) -> Result<Own, Failure> {
        let own = self.own.take().ok_or_else(|| Failure::from("this node has no subnet".to_owned()))?;
        let identity = NodeIdentity { address: node, key: self.key };
        let holder = claims.all.iter().find(|claim| claim.index == own.index);
        match holder {
            Some(claim) if claim.lease == own.lease.id && claim.identity() == identity => {
                self.own = Some(own);
                Ok(own)
            }
            Some(claim) if claim.lease == own.lease.id && claim.node == node => {
                Err("the claim of this node has another public key; claiming again".to_owned().into())
            }
            Some(claim) if claim.node == node => Err(Failure {
                reason: format!("another machine with the address {node} of this node took its subnet; change one"),
                delay: Some(DUPLICATE_DELAY),
            }),
            Some(claim) => Err(format!("node {} took the subnet of this node", claim.node).into()),
            None => {
                Err("the subnet of this node was deleted, or its lease has expired; claiming again".to_owned().into())
            }
        }
    }

    /// Renews the lease of the claim, or claims subnets.
    async fn renew(&mut self, network: &Weak<Inner>, client: &Client, node: IpAddr) -> Result<(), Failure> {
        if let Some(own) = self.own
            && client.renew(own.lease).await?
        {
            self.renewed = boot_time();
            return Ok(());
        }
        let last = self.last().await?;
        let own = subnet::claim(client, &self.keys, NodeIdentity { address: node, key: self.key }, last).await?;
        if let Err(reason) = self.ensure_definition(network, client, node).await {
            let _ = client.revoke(own.lease).await;
            return Err(reason.into());
        }
        let subnets: Vec<String> = self.keys.subnets_of(own.index).iter().map(ToString::to_string).collect();
        tracing::info!(
            network = self.settings.name,
            subnets = subnets.join(" "),
            "this node has subnets of the overlay"
        );
        // The claim takes its place. If this fails, it expires.
        let joining = shared::joining_key(self.keys.subnets(), node);
        let _ = client.change(&[], &[Change::Delete(&joining)]).await;
        (self.own, self.renewed) = (Some(own), boot_time());
        Ok(())
    }

    /// Ensures that the definition of a network that people created is in etcd. The claim keeps other nodes from deleting it.
    async fn ensure_definition(&self, network: &Weak<Inner>, client: &Client, node: IpAddr) -> Result<(), String> {
        let (Some(inner), Source::Etcd(etcd)) = (network.upgrade(), &self.settings.source) else { return Ok(()) };
        let all = inner.named.staying();
        let definition = all.iter().find(|definition| definition.list_name() == self.settings.name);
        let Some(definition) = definition else { return Ok(()) };
        Definitions::new(client, etcd, node).ensure(&Shared::of(definition)?).await
    }

    /// Returns the public key of this node; `None` unless the overlay is encrypted. Creates the endpoint, which has the key.
    async fn public_key(&self, node: IpAddr) -> Result<Option<PublicKey>, String> {
        if !self.settings.encrypted {
            return Ok(None);
        }
        let definition = self.settings.definition(node, self.keys.subnets_of(0));
        let (settings, stopped) = (self.settings.clone(), Arc::clone(&self.stopped));
        let key = in_kernel(move |socket| kernel::public_key(socket, &settings, definition, &stopped)).await?;
        // A claim without a key would be one that the others refuse.
        key.map(Some).ok_or_else(|| "the agent was stopped".to_owned())
    }

    /// Returns the claim that this node had last, according to its record.
    async fn last(&self) -> Result<Last, String> {
        let settings = self.settings.clone();
        let read = offload::blocking(move || Record::read(&settings.state_directory, &settings.name));
        // A damaged record is written again.
        let record = read.await.map_err(|bug| bug.to_string())?.ok().flatten();
        let Some(record) = record else { return Ok(Last::default()) };
        let is_of_record = |index: &u32| self.keys.subnets_of(*index) == record.definition.subnets;
        Ok(Last { index: (0..self.keys.count()).find(is_of_record), lease: record.lease })
    }

    /// Records the nodes for plugins, and configures the kernel.
    async fn configure(&mut self, node: IpAddr, own: Own, claims: Claims) -> Result<(), String> {
        let definition = self.settings.definition(node, self.keys.subnets_of(own.index));
        let mut peers: Vec<&Claim> = claims.all.iter().filter(|claim| claim.node != node).collect();
        if self.settings.encrypted {
            // Of two claims with one key the newer one counts: the address of a node may have changed.
            peers.sort_by_key(|claim| std::cmp::Reverse(claim.revision));
        }
        let peer =
            |claim: &Claim| Peer { node: claim.node, subnets: self.keys.subnets_of(claim.index), key: claim.key };
        let peers = peers.into_iter().map(peer).collect();
        let record = Record { definition, peers, lease: own.lease.id, renewed: self.renewed };
        let (settings, stopped) = (self.settings.clone(), Arc::clone(&self.stopped));
        let refused = in_kernel(move |socket| kernel::apply(socket, &settings, record, &stopped)).await?;
        if refused != self.refused {
            if !refused.is_empty() {
                tracing::warn!(
                    network = self.settings.name,
                    refused,
                    "nodes of the overlay are not valid; others are not affected"
                );
            }
            self.refused = refused;
        }
        Ok(())
    }
}

/// Returns the configured address of this node, or the one that it finds. A link has it: no other node's claim is taken by a
/// wrong setting.
pub(crate) async fn node(configured: Option<IpAddr>) -> Result<IpAddr, String> {
    in_kernel(move |socket| {
        let node = configured.map_or_else(|| ::overlay::node_address(socket), Ok)?;
        match local_addresses(socket)?.contains(&node) {
            true => Ok(node),
            false => Err(::overlay::Error::Config {
                object: "node".into(),
                reason: format!("{node} is not an address of this node"),
            }),
        }
    })
    .await
}

/// Returns a client of the cluster; reads its files.
pub(crate) async fn client(etcd: &EtcdSettings) -> Result<Client, String> {
    let options = Options {
        endpoints: etcd.endpoints.clone(),
        ca_file: etcd.ca_file.clone(),
        client_files: etcd.client_files.clone(),
        user: etcd.user.clone(),
    };
    let client = offload::blocking(move || Client::new(options)).await.map_err(|bug| bug.to_string())?;
    client.map_err(|error| error.to_string())
}
