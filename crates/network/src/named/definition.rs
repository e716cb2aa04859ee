//! The definition of a named network.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    time::{SystemTime, UNIX_EPOCH},
};

use rtnl::subnet::Subnet;
use serde::{Deserialize, Serialize};

use super::{driver::Driver, options::Options, pools::random};
use crate::{Error, ipam::Range};

/// Number of characters of an id that people see, as in Docker.
const SHORT: usize = 12;

/// A named network. It is valid: it was parsed from a request, and is parsed again when its file is read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkDefinition {
    /// 64 hexadecimal digits. Another network of the same name has another id.
    pub id: String,
    /// Name, unique on the node.
    pub name: String,
    /// Nanoseconds since the epoch.
    pub created_at: u64,
    /// How pods are connected.
    pub driver: Driver,
    /// Subnets of pods: at least one, IPv4 first.
    pub subnets: Vec<AddressPool>,
    /// Whether pods cannot reach other networks.
    pub internal: bool,
    /// Kept for Docker's users; has no effect.
    pub attachable: bool,
    /// Labels, for filters.
    pub labels: BTreeMap<String, String>,
    /// Options of the driver, as requested.
    pub options: BTreeMap<String, String>,
}

/// A subnet of a named network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressPool {
    /// The subnet.
    pub subnet: Subnet,
    /// Gateway of pods: the bridge, or a router that the node does not configure.
    pub gateway: IpAddr,
    /// The part of the subnet that pods get addresses of, if not all of it.
    pub ip_range: Option<Subnet>,
    /// Addresses that pods do not get, by name.
    pub reserved: BTreeMap<String, IpAddr>,
}

impl AddressPool {
    /// Returns a pool of all addresses of a subnet; the first one is the gateway.
    pub(crate) fn whole(subnet: Subnet) -> Result<Self, String> {
        let gateway = Range::whole(subnet)?.gateway;
        Ok(Self { subnet, gateway, ip_range: None, reserved: BTreeMap::new() })
    }
}

/// Returns the part of an id that people see.
fn short(id: &str) -> &str {
    id.get(..SHORT).unwrap_or(id)
}

/// Returns the name of the CNI list of a network, which is the same on all nodes that have it.
pub(crate) fn list_name(id: &str) -> String {
    format!("named-{}", short(id))
}

/// Reports whether a text may be an id.
pub(crate) fn is_hex_id(id: &str) -> bool {
    id.len() == 64 && id.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

impl NetworkDefinition {
    /// Returns the part of the id that people see.
    #[must_use]
    pub fn short_id(&self) -> &str {
        short(&self.id)
    }

    /// Returns the name of the CNI list of this network, of its leases and of its records.
    #[must_use]
    pub fn list_name(&self) -> String {
        list_name(&self.id)
    }

    /// Returns the bridge; `None` for other drivers.
    #[must_use]
    pub fn bridge(&self) -> Option<String> {
        match self.parsed_options() {
            Ok(Options::Bridge(options)) => Some(options.name.unwrap_or_else(|| format!("br-{}", self.short_id()))),
            _ => None,
        }
    }

    pub(crate) fn parsed_options(&self) -> Result<Options, String> {
        Options::parse(self.driver, &self.options)
    }

    /// Returns the subnet that an address is in.
    pub(crate) fn pool_of(&self, address: IpAddr) -> Option<&AddressPool> {
        self.subnets.iter().find(|pool| pool.subnet.contains(address))
    }
}

/// Returns a random id.
pub(crate) fn new_id() -> Result<String, Error> {
    let mut bytes = [0; 32];
    random(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Returns the nanoseconds since the epoch.
pub(crate) fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}
