//! The subnets of this node: claimed in etcd, the same again after a restart.

use std::{collections::HashSet, net::IpAddr};

use etcd::{Client, Error, Lease};
use overlay::LEASE_TTL;
use rustix::rand::{GetRandomFlags, getrandom};

use super::keys::{Claim, Keys, NodeIdentity};

/// How often claiming is tried while other nodes claim, too.
const ATTEMPTS: usize = 32;

/// The claim of this node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Own {
    pub(super) index: u32,
    pub(super) lease: Lease,
}

/// What this node knows of its claim from before, according to its record.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Last {
    /// Number of its subnets.
    pub(super) index: Option<u32>,
    /// Lease of its claim; zero if it is not known.
    pub(super) lease: i64,
}

/// The claims of all nodes.
#[derive(Debug)]
pub(super) struct Claims {
    pub(super) all: Vec<Claim>,
    /// Numbers that have a key, whatever its value is.
    taken: HashSet<u32>,
    /// Revision of the cluster.
    pub(super) revision: i64,
}

impl Claims {
    /// Reads the claims.
    pub(super) async fn read(client: &Client, keys: &Keys) -> Result<Self, Error> {
        let range = client.range(keys.subnets()).await?;
        Ok(Self {
            all: range.entries.iter().filter_map(|entry| keys.parse(entry)).collect(),
            taken: range.entries.iter().filter_map(|entry| keys.index(entry)).collect(),
            revision: range.revision,
        })
    }

    /// Returns the claim of this node: one with its lease, else one with its address, of its last boot. A node whose address
    /// has changed keeps its claim.
    fn of_node(&self, node: IpAddr, last: Last) -> Option<&Claim> {
        let of_lease = self.all.iter().find(|claim| last.lease != 0 && claim.lease == last.lease);
        // An earlier request may have taken effect although it failed: of two claims the one used last counts.
        let of_address = || {
            let mut all: Vec<&Claim> = self.all.iter().filter(|claim| claim.node == node).collect();
            all.sort_by_key(|claim| Some(claim.index) != last.index);
            all.first().copied()
        };
        of_lease.or_else(of_address)
    }
}

/// Claims subnets for this node: those that it has already, else those that it had last, else any. Returns the claim.
///
/// The number is random, so that one that became free recently is not likely to be taken: pods of a node that was lost for
/// long may still have addresses of it.
pub(super) async fn claim(client: &Client, keys: &Keys, node: NodeIdentity, last: Last) -> Result<Own, String> {
    let (lease, is_new) = lease(client, keys, last).await.map_err(text)?;
    let claimed = claim_with(client, keys, node, last, lease).await;
    if claimed.is_err() && is_new {
        // It would be one more with every attempt.
        let _ = client.revoke(lease).await;
    }
    claimed.map(|index| Own { index, lease })
}

async fn claim_with(client: &Client, keys: &Keys, node: NodeIdentity, last: Last, lease: Lease) -> Result<u32, String> {
    for number in 0..ATTEMPTS {
        // The number of the last time is tried once: what has its key may be anything.
        let last = Last { index: last.index.filter(|_| number == 0), ..last };
        if let Some(index) = attempt(client, keys, node, last, lease).await? {
            return Ok(index);
        }
    }
    Err(format!("other nodes took the subnet each of {ATTEMPTS} times"))
}

/// Returns the lease of the record if a claim has it, so that the claim does not change when the daemon is started again; else
/// a new one. Reports whether it is new. Keys of other settings, which are not claims any longer, end with the old lease.
async fn lease(client: &Client, keys: &Keys, last: Last) -> Result<(Lease, bool), Error> {
    let known = Lease { id: last.lease, ttl: LEASE_TTL };
    if last.lease != 0 {
        let is_of_claim = Claims::read(client, keys).await?.all.iter().any(|claim| claim.lease == last.lease);
        if is_of_claim && client.renew(known).await? {
            return Ok((known, false));
        }
        // It may have expired.
        let _ = client.revoke(known).await;
    }
    Ok((client.grant(LEASE_TTL).await?, true))
}

/// Returns the number of the claim; `None` if another node was faster.
async fn attempt(
    client: &Client,
    keys: &Keys,
    node: NodeIdentity,
    last: Last,
    lease: Lease,
) -> Result<Option<u32>, String> {
    let claims = Claims::read(client, keys).await.map_err(text)?;
    if let Some(claim) = claims.of_node(node.address, last) {
        if claim.lease == lease.id && claim.identity() == node {
            return Ok(Some(claim.index));
        }
        let (key, value) = (keys.subnet(claim.index), keys.value(claim.index, node));
        let is_replaced = client.replace(&key, &value, lease, claim.revision).await.map_err(text)?;
        return Ok(is_replaced.then_some(claim.index));
    }
    let index = match last.index.filter(|index| *index < keys.count() && !claims.taken.contains(index)) {
        Some(index) => index,
        None => free(keys.count(), &claims.taken)?,
    };
    let is_created = client.create(&keys.subnet(index), &keys.value(index, node), lease).await.map_err(text)?;
    Ok(is_created.then_some(index))
}

fn free(count: u32, taken: &HashSet<u32>) -> Result<u32, String> {
    let mut bytes = [0; 4];
    getrandom(&mut bytes[..], GetRandomFlags::empty()).map_err(|e| format!("get random bytes: {e}"))?;
    let start = u32::from_ne_bytes(bytes) % count;
    let mut all = (0..count).map(|offset| (start + offset) % count);
    all.find(|index| !taken.contains(index)).ok_or_else(|| {
        format!("all {count} subnets of the network are taken; use a larger network, or a longer subnetLength")
    })
}

fn text(error: Error) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_free_number_is_found() {
        let taken: HashSet<u32> = (0..16).filter(|index| *index != 11).collect();
        for _ in 0..20 {
            assert_eq!(free(16, &taken), Ok(11));
        }
        assert!(free(16, &(0..16).collect()).unwrap_err().contains("all 16 subnets"));
    }

    #[test]
    fn a_claim_is_found_by_its_lease_then_by_the_address() {
        let node = |n: u8| IpAddr::from([192, 0, 2, n]);
        let claim = |index, n, lease| Claim { index, node: node(n), key: None, revision: 1, lease };
        let claims =
            Claims { all: vec![claim(1, 1, 11), claim(2, 2, 22), claim(3, 2, 33)], taken: HashSet::new(), revision: 1 };
        let found = |n, index, lease| claims.of_node(node(n), Last { index, lease }).map(|claim| claim.index);
        assert_eq!(found(9, Some(1), 11), Some(1), "the address has changed");
        assert_eq!(found(2, Some(3), 0), Some(3), "the record does not have the lease");
        assert_eq!(found(2, None, 99), Some(2), "after a reboot");
        assert_eq!(found(9, Some(1), 99), None, "another node has the number now");
    }
}
