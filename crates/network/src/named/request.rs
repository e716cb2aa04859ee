//! Requests to create a network, as a client sends them. Everything in them is checked and bounded.

use std::{
    collections::{BTreeMap, HashSet},
    net::IpAddr,
};

use rtnl::subnet::Subnet;

use super::{definition::AddressPool, driver::Driver, options::Options};
use crate::{Error, ipam::Range};

/// Longest name, in bytes: it is a label of a domain name, too.
const NAME_MAX: usize = 63;
/// Maximum number of labels, options and reserved addresses.
const ENTRIES_MAX: usize = 64;
/// Longest key or value of a label or option, in bytes.
const TEXT_MAX: usize = 1024;
/// Maximum number of subnets: one for each family.
const SUBNETS_MAX: usize = 2;
/// Names with a meaning of their own in `pinion run --network`.
const TAKEN: [&str; 5] = ["default", "bridge", "host", "none", "pinion"];

/// A request to create a network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetworkRequest {
    /// Name of the network.
    pub name: String,
    /// Name of the driver; empty: `bridge`.
    pub driver: String,
    /// Requested subnets; without one of IPv4 a free one is chosen.
    pub subnets: Vec<SubnetRequest>,
    /// Whether the network has an IPv6 subnet, too.
    pub ipv6: bool,
    /// Whether pods cannot reach other networks.
    pub internal: bool,
    /// Accepted for Docker's users; has no effect.
    pub attachable: bool,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Options of the driver.
    pub options: BTreeMap<String, String>,
}

/// A requested subnet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubnetRequest {
    /// `ADDRESS/BITS`.
    pub subnet: String,
    /// Gateway; empty: the first address.
    pub gateway: String,
    /// `ADDRESS/BITS` within the subnet; empty: all of it.
    pub ip_range: String,
    /// Addresses that pods do not get, by name.
    pub reserved: BTreeMap<String, String>,
}

/// A checked request, whose missing subnets are not chosen yet.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) name: String,
    pub(crate) driver: Driver,
    pub(crate) options: Options,
    pub(crate) subnets: Vec<AddressPool>,
    pub(crate) needs_ipv6: bool,
    pub(crate) is_internal: bool,
}

impl NetworkRequest {
    pub(crate) fn parse(&self) -> Result<Plan, Error> {
        let wrong = |reason: String| Error::config(format!("create network {}", self.name), reason);
        self.plan().map_err(wrong)
    }

    fn plan(&self) -> Result<Plan, String> {
        if !is_name(&self.name) {
            return Err(format!(
                "the name is not valid: use 1 to {NAME_MAX} letters, digits and . _ -, starting with a letter or digit"
            ));
        }
        if TAKEN.contains(&self.name.as_str()) {
            return Err("this name has a meaning of its own; choose another one".into());
        }
        for (kind, map) in [("label", &self.labels), ("option", &self.options)] {
            bounded(kind, map)?;
        }
        let driver: Driver = if self.driver.is_empty() { Driver::Bridge } else { self.driver.parse()? };
        let options = Options::parse(driver, &self.options)?;
        let subnets = self.pools()?;
        let needs_ipv6 = self.ipv6 && !subnets.iter().any(|pool| pool.subnet.address.is_ipv6());
        Ok(Plan { name: self.name.clone(), driver, options, subnets, needs_ipv6, is_internal: self.internal })
    }

    fn pools(&self) -> Result<Vec<AddressPool>, String> {
        if self.subnets.len() > SUBNETS_MAX {
            return Err(format!("{} subnets; at most one of IPv4 and one of IPv6", self.subnets.len()));
        }
        let mut pools = self.subnets.iter().map(SubnetRequest::pool).collect::<Result<Vec<_>, _>>()?;
        pools.sort_by_key(|pool| pool.subnet.address.is_ipv6());
        match &pools[..] {
            [one, other] if one.subnet.address.is_ipv6() == other.subnet.address.is_ipv6() => {
                Err("two subnets of the same family; use another network for the second one".into())
            }
            _ => Ok(pools),
        }
    }
}

impl SubnetRequest {
    fn pool(&self) -> Result<AddressPool, String> {
        let subnet: Subnet = self.subnet.parse()?;
        let whole = Range::whole(subnet)?;
        if subnet.address.is_loopback() || subnet.address.is_multicast() || subnet.address.is_unspecified() {
            return Err(format!("subnet {subnet} cannot have pods"));
        }
        let within = |what: &str, text: &str| {
            let address: IpAddr = text.parse().map_err(|_| format!("{what} {text:?} is not an IP address"))?;
            match subnet.contains(address) && address != subnet.network() && address != broadcast(subnet) {
                true => Ok(address),
                false => Err(format!("{what} {address} is not an address of a host in subnet {subnet}")),
            }
        };
        let gateway = match self.gateway.as_str() {
            "" => whole.gateway,
            text => within("gateway", text)?,
        };
        let ip_range = match self.ip_range.as_str() {
            "" => None,
            text => {
                let range: Subnet = text.parse()?;
                let is_inside =
                    range == range.masked() && range.prefix >= subnet.prefix && subnet.contains(range.address);
                Some(range)
                    .filter(|_| is_inside)
                    .ok_or_else(|| format!("ip-range {text} is not a part of subnet {subnet}"))
                    .map(Some)?
            }
        };
        if self.reserved.len() > ENTRIES_MAX {
            return Err(format!("{} reserved addresses; at most {ENTRIES_MAX}", self.reserved.len()));
        }
        let reserved = self.reserved.iter().map(|(name, text)| match is_name(name) {
            true => Ok((name.clone(), within("aux-address", text)?)),
            false => Err(format!("aux-address {name:?} is not a valid name")),
        });
        Ok(AddressPool { subnet, gateway, ip_range, reserved: reserved.collect::<Result<_, String>>()? })
    }
}

/// Returns the broadcast address of an IPv4 subnet, and the network's address of one of IPv6, which has no broadcasts.
fn broadcast(subnet: Subnet) -> IpAddr {
    if subnet.address.is_ipv4() { subnet.last() } else { subnet.network() }
}

fn bounded(kind: &str, map: &BTreeMap<String, String>) -> Result<(), String> {
    if map.len() > ENTRIES_MAX {
        return Err(format!("{} {kind}s; at most {ENTRIES_MAX}", map.len()));
    }
    let is_wrong = |text: &String| text.len() > TEXT_MAX || text.chars().any(char::is_control);
    match map.iter().find(|(key, value)| key.is_empty() || is_wrong(key) || is_wrong(value)) {
        None => Ok(()),
        Some((key, _)) => Err(format!("{kind} {:?} is not valid", key.chars().take(NAME_MAX).collect::<String>())),
    }
}

/// Reports whether a text may be the name of a network, of a reserved address or an alias.
pub(crate) fn is_name(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    name.len() <= NAME_MAX && name.as_bytes().first().is_some_and(u8::is_ascii_alphanumeric) && name.bytes().all(plain)
}

/// Checks that no name occurs twice.
pub(super) fn distinct<'a>(names: impl Iterator<Item = &'a str>) -> bool {
    let mut seen = HashSet::new();
    names.into_iter().all(|name| seen.insert(name))
}
