//! The subnet of this node: claimed in etcd, the same again after a restart.

use std::{collections::HashSet, net::IpAddr, time::Duration};

use etcd::{Client, Error, Lease};
use rustix::rand::{GetRandomFlags, getrandom};

use super::keys::{Claim, Keys};

/// Time for which a node that is gone keeps its subnet. Its daemon may be down for as long without any effect.
pub(super) const LEASE_TTL: Duration = Duration::from_secs(24 * 3600);
/// How often claiming is tried while other nodes claim, too.
const ATTEMPTS: usize = 32;

/// The claim of this node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Own {
    pub(super) index: u32,
    pub(super) lease: Lease,
}

/// Outcome of an attempt.
enum Attempt {
    Claimed(u32),
    /// Another node was faster.
    Lost,
}

/// Returns the claim of this node: the one that it has already, else that of the number that it had last, else any free one.
/// The number is random, so that one that became free recently is not likely to be taken: pods of a node that was lost for
/// long may still have addresses of it.
pub(super) async fn claim(client: &Client, keys: &Keys, node: IpAddr, last: Option<u32>) -> Result<Own, String> {
    let lease = client.grant(LEASE_TTL).await.map_err(text)?;
    for _ in 0..ATTEMPTS {
        match attempt(client, keys, node, last, lease).await {
            Ok(Attempt::Claimed(index)) => return Ok(Own { index, lease }),
            Ok(Attempt::Lost) => {}
            Err(reason) => {
                // It expires in any case.
                let _ = client.revoke(lease).await;
                return Err(reason);
            }
        }
    }
    let _ = client.revoke(lease).await;
    Err(format!("another node took the subnet each of {ATTEMPTS} times"))
}

async fn attempt(
    client: &Client,
    keys: &Keys,
    node: IpAddr,
    last: Option<u32>,
    lease: Lease,
) -> Result<Attempt, String> {
    let claims = read(client, keys).await.map_err(text)?.0;
    let done = |index: u32, is_done: bool| if is_done { Attempt::Claimed(index) } else { Attempt::Lost };
    // One node may have two claims if an earlier request took effect although it failed: the last one it used counts.
    let mut own: Vec<&Claim> = claims.iter().filter(|claim| claim.node == node).collect();
    own.sort_by_key(|claim| Some(claim.index) != last);
    if let Some(claim) = own.first() {
        let value = keys.value(claim.index, node);
        let key = keys.subnet(claim.index);
        let is_replaced = client.replace(&key, &value, lease, claim.revision).await.map_err(text)?;
        if is_replaced && claim.lease != 0 && claim.lease != lease.id {
            // The lease of the daemon before this one, which keeps further claims if there are any.
            let _ = client.revoke(Lease { id: claim.lease, ttl: LEASE_TTL }).await;
        }
        return Ok(done(claim.index, is_replaced));
    }
    let taken: HashSet<u32> = claims.iter().map(|claim| claim.index).collect();
    let index = match last.filter(|last| *last < keys.count() && !taken.contains(last)) {
        Some(last) => last,
        None => free(keys.count(), &taken)?,
    };
    let is_created = client.create(&keys.subnet(index), &keys.value(index, node), lease).await.map_err(text)?;
    Ok(done(index, is_created))
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

/// Returns the claims of all nodes, with the revision of the cluster.
pub(super) async fn read(client: &Client, keys: &Keys) -> Result<(Vec<Claim>, i64), Error> {
    let range = client.range(keys.subnets()).await?;
    Ok((range.entries.iter().filter_map(|entry| keys.parse(entry)).collect(), range.revision))
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
}
