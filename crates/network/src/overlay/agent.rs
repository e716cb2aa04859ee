//! The agent of one overlay. With nodes in etcd:
//!
//! ```text
//! claim a subnet → ┌ read all nodes → record, configure the kernel → wait for a change ┐
//!                  └───────────────────────────────────────────────────────────────────┘
//! ```

use std::{net::IpAddr, sync::Weak, time::Duration};

use ::overlay::{EtcdSettings, Overlay, Peer, Peers, Record, Settings, Source, converge};
use etcd::{Client, Options};
use rtnl::netlink::Socket;
use tokio::time::Instant;

use super::{
    keys::{Claim, Keys},
    subnet::{self, LEASE_TTL, Own},
};
use crate::network::Inner;

/// Longest time between two comparisons of all nodes with the kernel: a change that a watch missed takes effect then, and
/// what an administrator deleted returns.
const RESCAN: Duration = Duration::from_secs(30);
/// Time after a change in which further changes are waited for.
const SETTLE: Duration = Duration::from_millis(50);
/// Time between two attempts while etcd does not respond, at first and later.
const RETRY_MIN: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(15);
/// Interval at which the lease is renewed.
const RENEWAL: Duration = Duration::from_secs(LEASE_TTL.as_secs() / 24);

/// Runs the agent until the network is gone, or the task is aborted.
pub(super) async fn run(network: Weak<Inner>, settings: Settings) {
    match settings.source.clone() {
        Source::Nodes(_) => keep(network, settings).await,
        Source::Etcd(etcd) => follow(network, settings, etcd).await,
    }
}

/// Keeps the kernel's configuration that of the nodes in the configuration.
async fn keep(network: Weak<Inner>, settings: Settings) {
    loop {
        let of_kernel = settings.clone();
        let outcome = in_kernel(move |socket| {
            let _lock = ::overlay::lock(&of_kernel.state_directory, &of_kernel.name)?;
            let (overlay, peers) = of_kernel.resolve(socket)?;
            converge(socket, &overlay, &peers)
        });
        let outcome = outcome.await.map(drop);
        let Some(inner) = network.upgrade() else { return };
        inner.note(&settings.name, outcome).await;
        drop(inner);
        tokio::time::sleep(RESCAN).await;
    }
}

/// Follows the nodes in etcd.
async fn follow(network: Weak<Inner>, settings: Settings, etcd: EtcdSettings) {
    let mut agent = Agent { keys: Keys::new(&settings, &etcd), settings, own: None, refused: String::new() };
    let mut delay = RETRY_MIN;
    loop {
        let Err(reason) = agent.follow(&network, &etcd, &mut delay).await else { return };
        let Some(inner) = network.upgrade() else { return };
        inner.note(&agent.settings.name, Err(reason)).await;
        drop(inner);
        tokio::time::sleep(delay).await;
        delay = (2 * delay).min(RETRY_MAX);
    }
}

struct Agent {
    settings: Settings,
    keys: Keys,
    own: Option<Own>,
    /// Nodes that were refused last, for the log.
    refused: String,
}

impl Agent {
    /// Follows the nodes until something fails, or the network is gone.
    async fn follow(&mut self, network: &Weak<Inner>, etcd: &EtcdSettings, delay: &mut Duration) -> Result<(), String> {
        let options = Options {
            endpoints: etcd.endpoints.clone(),
            ca_file: etcd.ca_file.clone(),
            client_files: etcd.client_files.clone(),
            user: etcd.user.clone(),
        };
        let client = offload::blocking(move || Client::new(options)).await.map_err(|bug| bug.to_string())?;
        let client = client.map_err(|error| error.to_string())?;
        let node = self.node().await?;
        let mut renewal = Instant::now();
        loop {
            if renewal <= Instant::now() {
                self.renew(&client, node).await?;
                renewal = Instant::now() + RENEWAL;
            }
            let (claims, revision) = subnet::read(&client, &self.keys).await.map_err(|error| error.to_string())?;
            match self.own.filter(|own| has_claim(&claims, *own, node)) {
                Some(own) => self.configure(node, own, claims).await?,
                // Deleted, or claimed by another node while this one was cut off for longer than the lease.
                None => {
                    self.own = None;
                    renewal = Instant::now();
                    continue;
                }
            }
            let Some(inner) = network.upgrade() else { return Ok(()) };
            inner.note(&self.settings.name, Ok(())).await;
            drop(inner);
            *delay = RETRY_MIN;
            let wait = RESCAN.min(renewal.saturating_duration_since(Instant::now()));
            match tokio::time::timeout(wait, client.wait_for_change(self.keys.subnets(), revision)).await {
                Ok(Ok(())) => tokio::time::sleep(SETTLE).await,
                Ok(Err(error)) => return Err(error.to_string()),
                Err(_) => {}
            }
        }
    }

    async fn node(&self) -> Result<IpAddr, String> {
        let settings = self.settings.clone();
        in_kernel(move |socket| settings.node(socket)).await
    }

    /// Renews the lease of the claim, or claims subnets.
    async fn renew(&mut self, client: &Client, node: IpAddr) -> Result<(), String> {
        if let Some(own) = self.own
            && client.renew(own.lease).await.map_err(|error| error.to_string())?
        {
            return Ok(());
        }
        let last = self.last().await?;
        let own = subnet::claim(client, &self.keys, node, last).await?;
        let subnets: Vec<String> = self.keys.subnets_of(own.index).iter().map(ToString::to_string).collect();
        tracing::info!(
            network = self.settings.name,
            subnets = subnets.join(" "),
            "this node has subnets of the overlay"
        );
        self.own = Some(own);
        Ok(())
    }

    /// Returns the number of the subnets that this node had last, according to its record.
    async fn last(&self) -> Result<Option<u32>, String> {
        let (settings, keys) = (self.settings.clone(), self.keys.clone());
        let read = offload::blocking(move || Record::read(&settings.state_directory, &settings.name));
        // A damaged record is written again.
        let record = read.await.map_err(|bug| bug.to_string())?.ok().flatten();
        let subnets = record.map(|record| record.definition.subnets);
        Ok(subnets.and_then(|subnets| (0..keys.count()).find(|index| keys.subnets_of(*index) == subnets)))
    }

    /// Records the nodes for plugins, and configures the kernel.
    async fn configure(&mut self, node: IpAddr, own: Own, claims: Vec<Claim>) -> Result<(), String> {
        let definition = self.settings.definition(node, self.keys.subnets_of(own.index));
        let peers = claims.into_iter().filter(|claim| claim.node != node);
        let peers = peers.map(|claim| Peer { node: claim.node, subnets: claim.subnets }).collect();
        let record = Record { definition, peers };
        let settings = self.settings.clone();
        let refused = in_kernel(move |socket| apply(socket, &settings, record)).await?;
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

/// Reports whether the claims contain that of this node.
fn has_claim(claims: &[Claim], own: Own, node: IpAddr) -> bool {
    claims.iter().any(|claim| claim.index == own.index && claim.node == node && claim.lease == own.lease.id)
}

/// Writes the record if it has changed, and configures the kernel; returns which nodes were refused, and why.
fn apply(socket: &mut Socket, settings: &Settings, record: Record) -> Result<String, ::overlay::Error> {
    let (directory, name) = (&settings.state_directory, &settings.name);
    let overlay = Overlay::new(record.definition.clone())?;
    let _lock = ::overlay::lock(directory, name)?;
    if !Record::read(directory, name).is_ok_and(|current| current.as_ref() == Some(&record)) {
        record.write(directory, name)?;
    }
    let (peers, refused) = Peers::select(&overlay, record.peers);
    converge(socket, &overlay, &peers)?;
    Ok(refused.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
}

/// Runs work with a netlink socket of the node.
async fn in_kernel<T: Send + 'static>(
    work: impl FnOnce(&mut Socket) -> Result<T, ::overlay::Error> + Send + 'static,
) -> Result<T, String> {
    let run = || {
        let mut socket = Socket::route().map_err(|error| format!("open rtnetlink socket: {error}"))?;
        work(&mut socket).map_err(|error| error.to_string())
    };
    offload::blocking(run).await.map_err(|bug| bug.to_string())?
}
