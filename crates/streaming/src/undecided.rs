//! Connections that have not named a session yet. Anybody who reaches the port can open them, so they are few, and a
//! flood of them pushes out itself: where all places are taken, the peer that has the most of them loses its oldest
//! one.

use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// Most connections that have not named a session.
pub(crate) const UNDECIDED_MAX: usize = 512;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Undecided(Mutex<Connections>);

#[derive(Debug, Default)]
struct Connections {
    next: u64,
    /// By number, hence the oldest first.
    by_number: BTreeMap<u64, Connection>,
}

#[derive(Debug)]
struct Connection {
    peer: Peer,
    dropped: CancellationToken,
}

/// Who shares places: one address, or every process of this node that connects over loopback.
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
    /// The oldest connection of the peer that has the most.
    fn surplus(&self) -> Option<u64> {
        let mut counts: HashMap<Peer, usize> = HashMap::new();
        for connection in self.by_number.values() {
            *counts.entry(connection.peer).or_default() += 1;
        }
        let most = counts.values().max()?;
        self.by_number.iter().find(|(_, connection)| counts[&connection.peer] == *most).map(|(number, _)| *number)
    }
}

impl Undecided {
    fn lock(&self) -> MutexGuard<'_, Connections> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a connection that was accepted; another one is dropped where there is no place.
    pub(crate) fn enter(self: &Arc<Self>, address: IpAddr) -> Place {
        let mut connections = self.lock();
        if connections.by_number.len() >= UNDECIDED_MAX
            && let Some(number) = connections.surplus()
            && let Some(surplus) = connections.by_number.remove(&number)
        {
            surplus.dropped.cancel();
        }
        let (number, dropped) = (connections.next, CancellationToken::new());
        connections.next += 1;
        connections.by_number.insert(number, Connection { peer: Peer::of(address), dropped: dropped.clone() });
        drop(connections);
        Place { undecided: Arc::clone(self), number, dropped }
    }
}

/// The place of one connection, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    undecided: Arc<Undecided>,
    number: u64,
    dropped: CancellationToken,
}

impl Place {
    /// Its client named a session: it is not dropped any longer.
    pub(crate) fn decided(&self) {
        self.undecided.lock().by_number.remove(&self.number);
    }

    /// Resolves when the connection loses its place, or did not name a session within `limit`.
    pub(crate) async fn lost(&self, limit: Duration) {
        tokio::select! {
            () = self.dropped.cancelled() => {}
            () = sleep(limit) => {
                if !self.undecided.lock().by_number.contains_key(&self.number) {
                    std::future::pending::<()>().await;
                }
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.decided();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn the_peer_that_has_the_most_loses_its_oldest() {
        let undecided = Arc::new(Undecided::default());
        let other = undecided.enter(address("192.0.2.1"));
        // All of loopback is one peer, by whatever address.
        let all: Vec<Place> = (1..UNDECIDED_MAX)
            .map(|n| undecided.enter(address(if n % 2 == 0 { "127.0.0.1" } else { "::ffff:127.9.9.9" })))
            .collect();
        assert!(all.iter().chain([&other]).all(|place| !place.dropped.is_cancelled()));
        let newest = undecided.enter(address("::1"));
        assert!(all[0].dropped.is_cancelled());
        assert!(all[1..].iter().chain([&other, &newest]).all(|place| !place.dropped.is_cancelled()));
        all[1].decided();
        let (_one, _two) = (undecided.enter(address("::1")), undecided.enter(address("::1")));
        assert!(!all[1].dropped.is_cancelled(), "it named a session");
        assert!(all[2].dropped.is_cancelled());
        drop((all, other, newest, _one, _two));
        assert!(undecided.lock().by_number.is_empty());
    }
}
