//! What the resolver of a pod knows, and what all of them share.

use std::{net::SocketAddr, path::PathBuf, sync::Arc};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{Names, node_servers::NodeServers, pace::Pace};

/// Longest query, in bytes.
pub(crate) const QUERY_MAX: usize = 4096;
/// Number of forwarded queries of a pod in flight.
const FORWARDS: usize = 32;
/// Number of forwarded queries of all pods in flight.
const ALL_FORWARDS: usize = 32 * FORWARDS;
/// Number of connections of a pod.
pub(crate) const CONNECTIONS: usize = 8;

/// What the resolvers of all pods share.
#[derive(Clone, Debug)]
pub struct Shared {
    forwards: Arc<Semaphore>,
    node: Arc<NodeServers>,
}

impl Shared {
    /// Uses the servers of a file of the node, `/etc/resolv.conf`, for pods that request none.
    #[must_use]
    pub fn new(node_file: PathBuf) -> Self {
        Self { forwards: Arc::new(Semaphore::new(ALL_FORWARDS)), node: NodeServers::new(node_file) }
    }
}

/// The state of one pod's resolver.
pub(crate) struct State {
    pub(crate) names: Arc<dyn Names>,
    pub(crate) pace: Pace,
    forwards: Arc<Semaphore>,
    servers: Vec<SocketAddr>,
    shared: Shared,
}

impl State {
    pub(crate) fn new(names: Arc<dyn Names>, servers: Vec<SocketAddr>, shared: Shared) -> Self {
        Self { names, pace: Pace::new(), forwards: Arc::new(Semaphore::new(FORWARDS)), servers, shared }
    }

    /// Returns the servers to forward to.
    pub(crate) async fn servers(&self) -> Vec<SocketAddr> {
        if self.servers.is_empty() { self.shared.node.get().await } else { self.servers.clone() }
    }

    /// Returns the permit to forward a query; `None` if too many are in flight.
    pub(crate) fn permit(&self) -> Option<[OwnedSemaphorePermit; 2]> {
        let own = Arc::clone(&self.forwards).try_acquire_owned().ok()?;
        Some([own, Arc::clone(&self.shared.forwards).try_acquire_owned().ok()?])
    }
}
