//! Choice of subnets for networks that request none.

use std::net::{IpAddr, Ipv6Addr};

use rtnl::subnet::{Subnet, address, bits, number};

use crate::Error;

/// Pools that subnets are chosen from by default: those of Docker.
pub const DEFAULT_POOLS: [&str; 5] =
    ["172.17.0.0/16:16", "172.18.0.0/15:16", "172.20.0.0/14:16", "172.24.0.0/13:16", "192.168.0.0/16:20"];

/// Pools of addresses, in the order in which they are used.
#[derive(Clone, Debug)]
pub(crate) struct Pools(Vec<Pool>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pool {
    base: Subnet,
    /// Prefix of the subnets that are chosen, in bits.
    size: u8,
}

impl Pools {
    /// Parses pools such as `172.18.0.0/15:16`: a base and the prefix length of the subnets.
    pub(crate) fn parse(pools: &[String]) -> Result<Self, Error> {
        let wrong = |text: &str, reason: &str| Error::config("network.address_pools", format!("{text:?} {reason}"));
        let pool = |text: &String| {
            let (base, size) = text
                .rsplit_once('/')
                .and_then(|(_, tail)| {
                    let (_, size) = tail.split_once(':')?;
                    let base = text.get(..text.len() - size.len() - 1)?.parse::<Subnet>().ok()?;
                    Some((base, size.parse::<u8>().ok()?))
                })
                .ok_or_else(|| wrong(text, "is not a pool such as 172.18.0.0/15:16"))?;
            let is_valid = base == base.masked() && size >= base.prefix && size <= bits(base.address) - 2;
            match is_valid {
                true => Ok(Pool { base, size }),
                false => Err(wrong(text, "has host bits, or a size that no subnet of it can have")),
            }
        };
        pools.iter().map(pool).collect::<Result<_, _>>().map(Self)
    }

    /// Returns the first subnet of IPv4, or of IPv6, that overlaps with none that is taken.
    pub(crate) fn choose(&self, ipv6: bool, taken: &[Subnet]) -> Option<Subnet> {
        let pools = self.0.iter().filter(|pool| pool.base.address.is_ipv6() == ipv6);
        pools.into_iter().find_map(|pool| pool.free(taken))
    }
}

impl Pool {
    fn free(&self, taken: &[Subnet]) -> Option<Subnet> {
        let mut next = number(self.base.network());
        while next <= number(self.base.last()) {
            let candidate = Subnet { address: address(next, self.base.address), prefix: self.size };
            // What overlaps is skipped as a whole, so that a large pool takes no longer than the list is.
            match taken.iter().filter(|other| other.overlaps(candidate)).map(|other| number(other.last())).max() {
                None => return Some(candidate),
                Some(last) => next = last.max(number(candidate.last())).checked_add(1)?,
            }
            let step = number(candidate.last()) - number(candidate.network()) + 1;
            next = next.div_ceil(step).checked_mul(step)?;
        }
        None
    }
}

/// Returns a random subnet of unique local addresses (RFC 4193), with a prefix of 48 or more bits.
pub(crate) fn unique_local(prefix: u8) -> Result<Subnet, Error> {
    let mut bytes = [0u8; 16];
    random(&mut bytes[1..6])?;
    bytes[0] = 0xfd;
    Ok(Subnet { address: IpAddr::V6(Ipv6Addr::from(bytes)), prefix })
}

/// Fills a buffer with random bytes.
pub(crate) fn random(buffer: &mut [u8]) -> Result<(), Error> {
    let read = rustix::rand::getrandom(buffer, rustix::rand::GetRandomFlags::empty());
    read.map(drop).map_err(|e| Error::kernel("read", "random bytes", e))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn default_pools() -> Pools {
        Pools::parse(&DEFAULT_POOLS.map(str::to_owned)).expect("valid")
    }

    fn subnets(texts: &[&str]) -> Vec<Subnet> {
        texts.iter().map(|text| text.parse().expect("a subnet")).collect()
    }

    #[test]
    fn subnets_are_chosen_without_overlap() {
        let choose = |taken: &[&str]| default_pools().choose(false, &subnets(taken)).map(|s| s.to_string());
        assert_eq!(choose(&[]).as_deref(), Some("172.17.0.0/16"));
        assert_eq!(choose(&["172.17.9.0/24", "172.18.0.0/16"]).as_deref(), Some("172.19.0.0/16"));
        assert_eq!(choose(&["172.16.0.0/12"]).as_deref(), Some("192.168.0.0/20"));
        assert_eq!(choose(&["172.16.0.0/12", "192.168.0.0/24"]).as_deref(), Some("192.168.16.0/20"));
        assert_eq!(choose(&["172.16.0.0/12", "192.168.0.0/16"]), None);
        assert_eq!(default_pools().choose(true, &[]), None);
    }

    #[test]
    fn invalid_pools_are_refused() {
        for wrong in
            ["", "172.17.0.0/16", "172.17.0.0/16:15", "172.17.0.0/16:31", "172.17.0.1/16:16", "x/1:2", "fd00::/48:127"]
        {
            assert!(Pools::parse(&[wrong.to_owned()]).is_err(), "{wrong}");
        }
        let six = Pools::parse(&["fd00:1::/48:64".to_owned()]).expect("valid");
        assert_eq!(
            six.choose(true, &subnets(&["fd00:1::/64"])).map(|s| s.to_string()).as_deref(),
            Some("fd00:1:0:1::/64")
        );
    }
}
