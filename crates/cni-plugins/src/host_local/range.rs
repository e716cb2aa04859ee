//! Ranges of addresses.

use std::net::IpAddr;

use rtnl::subnet::{Subnet, bits, number};

/// A range within a subnet, with the subnet's gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Subnet.
    pub subnet: Subnet,
    /// First address.
    pub first: IpAddr,
    /// Last address.
    pub last: IpAddr,
    /// Gateway, which is never assigned.
    pub gateway: IpAddr,
}

impl Range {
    /// Returns the range of all usable addresses of a subnet; the first address is the gateway's and stays reserved.
    pub fn whole(subnet: Subnet) -> Result<Self, String> {
        Self::new(subnet, None, None, None)
    }

    /// Returns the range of a subnet from a first to a last address, by default all usable ones. The default gateway is
    /// the first usable address.
    pub fn new(
        subnet: Subnet,
        first: Option<IpAddr>,
        last: Option<IpAddr>,
        gateway: Option<IpAddr>,
    ) -> Result<Self, String> {
        if bits(subnet.address) - subnet.prefix < 2 {
            return Err(format!("subnet {subnet} is too small for pods; use at most /{}", bits(subnet.address) - 2));
        }
        if subnet != subnet.masked() {
            return Err(format!("subnet {subnet} has host bits set; write {}", subnet.masked()));
        }
        let first = first.unwrap_or_else(|| subnet.first_usable());
        let last = last.unwrap_or_else(|| subnet.last_usable());
        for address in [first, last] {
            if !subnet.contains(address) {
                return Err(format!("address {address} is not in subnet {subnet}"));
            }
        }
        if number(first) > number(last) {
            return Err(format!("the range from {first} to {last} is empty"));
        }
        Ok(Self { subnet, first, last, gateway: gateway.unwrap_or_else(|| subnet.first_usable()) })
    }

    /// Reports whether an address is in the range.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.subnet.contains(address) && (number(self.first)..=number(self.last)).contains(&number(address))
    }

    /// Reports whether an address must not be assigned to a pod, because it is the gateway's.
    pub fn is_reserved(&self, address: IpAddr) -> bool {
        address == self.gateway
    }
}
