//! Connections that have not requested a session yet. Any process that can reach the port can open them, so their
//! number is limited. A flood evicts its own connections: when the limit is reached, the peer with the most connections
//! loses its oldest one.

use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// Maximum number of connections that have not requested a session.
pub(crate) const PENDING_MAX: usize = 512;

/// The connections that have not requested a session.
#[derive(Debug, Default)]
pub(crate) struct PendingConnections(Mutex<Connections>);

#[derive(Debug, Default)]
struct Connections {
    next: u64,
    /// Ordered by number, hence by age, the oldest first.
    by_number: BTreeMap<u64, Connection>,
}

#[derive(Debug)]
struct Connection {
    peer: Peer,
    dropped: CancellationToken,
}

/// The origin of connections: an address, or all processes of this node that connect over loopback.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Peer {
    Node,
    Address(IpAddr),
}

impl Peer {
    fn of(address: IpAddr) -> Self {
        let address = address.to_canonical();
        if address.is_loopback() { Self::Node } else { Self::Address(address) }
    }
}

impl Connections {
    /// Returns the oldest connection of the peer that has the most connections.
    fn surplus(&self) -> Option<u64> {
        let mut counts: HashMap<Peer, usize> = HashMap::new();
        for connection in self.by_number.values() {
            *counts.entry(connection.peer).or_default() += 1;
        }
        let most = counts.values().max()?;
        self.by_number.iter().find(|(_, connection)| counts[&connection.peer] == *most).map(|(number, _)| *number)
    }
}

impl PendingConnections {
    fn lock(&self) -> MutexGuard<'_, Connections> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an accepted connection; if the limit is reached, another connection is evicted.
    pub(crate) fn add(self: &Arc<Self>, address: IpAddr) -> PendingConnection {
        let mut connections = self.lock();
        if connections.by_number.len() >= PENDING_MAX
            && let Some(number) = connections.surplus()
            && let Some(evicted) = connections.by_number.remove(&number)
        {
            evicted.dropped.cancel();
        }
        let (number, dropped) = (connections.next, CancellationToken::new());
        connections.next += 1;
        connections.by_number.insert(number, Connection { peer: Peer::of(address), dropped: dropped.clone() });
        drop(connections);
        PendingConnection { connections: Arc::clone(self), number, dropped }
    }
}

/// A connection that has not requested a session. Dropping it removes it.
#[derive(Debug)]
pub(crate) struct PendingConnection {
    connections: Arc<PendingConnections>,
    number: u64,
    dropped: CancellationToken,
}

impl PendingConnection {
    /// Removes the connection from the limit and the timeout, because its client has requested a session.
    pub(crate) fn remove(&self) {
        self.connections.lock().by_number.remove(&self.number);
    }

    /// Resolves when the connection is evicted, or has not requested a session within `limit`.
    pub(crate) async fn expired(&self, limit: Duration) {
        tokio::select! {
            () = self.dropped.cancelled() => {}
            () = sleep(limit) => {
                if !self.connections.lock().by_number.contains_key(&self.number) {
                    std::future::pending::<()>().await;
                }
            }
        }
    }
}

impl Drop for PendingConnection {
    fn drop(&mut self) {
        self.remove();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn the_peer_with_the_most_connections_loses_its_oldest() {
        let pending = Arc::new(PendingConnections::default());
        let other = pending.add(address("192.0.2.1"));
        // All loopback addresses are the same peer.
        let all: Vec<PendingConnection> = (1..PENDING_MAX)
            .map(|n| pending.add(address(if n % 2 == 0 { "127.0.0.1" } else { "::ffff:127.9.9.9" })))
            .collect();
        assert!(all.iter().chain([&other]).all(|connection| !connection.dropped.is_cancelled()));
        let newest = pending.add(address("::1"));
        assert!(all[0].dropped.is_cancelled());
        assert!(all[1..].iter().chain([&other, &newest]).all(|connection| !connection.dropped.is_cancelled()));
        all[1].remove();
        let (_one, _two) = (pending.add(address("::1")), pending.add(address("::1")));
        assert!(!all[1].dropped.is_cancelled(), "its client has requested a session");
        assert!(all[2].dropped.is_cancelled());
        drop((all, other, newest, _one, _two));
        assert!(pending.lock().by_number.is_empty());
    }
}
