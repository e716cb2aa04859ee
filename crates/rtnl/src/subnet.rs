//! A subnet: an address and the length of its prefix.

use std::{fmt, net::IpAddr, str::FromStr};

use serde::{Deserialize, Serialize};

/// An IPv4 or IPv6 subnet, or an address within one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Subnet {
    /// Address, with host bits if it is one within a subnet.
    pub address: IpAddr,
    /// Length of the prefix, at most that of the address.
    pub prefix: u8,
}

/// Returns the length of an address in bits.
pub fn bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// Converts an address to an integer, for arithmetic.
pub fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u128::from(v4.to_bits()),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

/// Converts an integer to an address of the same family as `like`.
pub fn address(number: u128, like: IpAddr) -> IpAddr {
    match like {
        // IPv4 numbers are masked by their subnet, so they fit into 32 bits.
        IpAddr::V4(_) => IpAddr::V4(u32::try_from(number).unwrap_or(u32::MAX).into()),
        IpAddr::V6(_) => IpAddr::V6(number.into()),
    }
}

/// Returns the address with these bytes in network byte order; `None` unless there are 4 or 16.
pub fn from_octets(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from),
        16 => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
        _ => None,
    }
}

/// Returns the bytes of an address in network byte order.
pub fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

impl Subnet {
    fn host_mask(self) -> u128 {
        match bits(self.address) - self.prefix {
            128 => u128::MAX,
            host => (1 << host) - 1,
        }
    }

    /// Returns the first address, which identifies the network itself.
    pub fn network(self) -> IpAddr {
        address(number(self.address) & !self.host_mask(), self.address)
    }

    /// Returns the last address, which is the broadcast address for IPv4.
    pub fn last(self) -> IpAddr {
        address(number(self.address) | self.host_mask(), self.address)
    }

    /// Returns the first usable address.
    pub fn first_usable(self) -> IpAddr {
        address(number(self.network()) + 1, self.address)
    }

    /// Returns the last usable address.
    pub fn last_usable(self) -> IpAddr {
        let broadcast = u128::from(self.address.is_ipv4());
        address(number(self.last()) - broadcast, self.address)
    }

    /// Reports whether an address is in the subnet.
    pub fn contains(self, other: IpAddr) -> bool {
        other.is_ipv4() == self.address.is_ipv4() && number(other) & !self.host_mask() == number(self.network())
    }

    /// Reports whether the subnets have an address in common.
    pub fn overlaps(self, other: Self) -> bool {
        self.contains(other.network()) || other.contains(self.network())
    }

    /// Returns the subnet with the host bits cleared.
    pub fn masked(self) -> Self {
        Self { address: self.network(), ..self }
    }

    /// Returns `address` with the prefix length of this subnet.
    pub fn with(self, address: IpAddr) -> Self {
        Self { address, ..self }
    }
}

impl fmt::Display for Subnet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

impl FromStr for Subnet {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let invalid = || format!("{text:?} is not a subnet such as 10.85.0.0/16");
        let (address, prefix) = text.split_once('/').ok_or_else(invalid)?;
        let address: IpAddr = address.parse().map_err(|_| invalid())?;
        let prefix: u8 = prefix.parse().map_err(|_| invalid())?;
        if prefix <= bits(address) { Ok(Self { address, prefix }) } else { Err(invalid()) }
    }
}

impl TryFrom<String> for Subnet {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Subnet> for String {
    fn from(subnet: Subnet) -> Self {
        subnet.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subnet(text: &str) -> Subnet {
        text.parse().unwrap()
    }

    #[test]
    fn edges_of_a_subnet() {
        let four = subnet("10.85.3.7/30");
        assert_eq!(four.network().to_string(), "10.85.3.4");
        assert_eq!(four.first_usable().to_string(), "10.85.3.5");
        assert_eq!(four.last_usable().to_string(), "10.85.3.6");
        assert_eq!(four.last().to_string(), "10.85.3.7");
        let six = subnet("fd00:85::/64");
        assert_eq!(six.first_usable().to_string(), "fd00:85::1");
        assert_eq!(six.last_usable().to_string(), "fd00:85::ffff:ffff:ffff:ffff");
        assert!(subnet("::/0").contains("1::".parse().unwrap()));
        assert!(!six.contains("10.0.0.1".parse().unwrap()));
        assert!(subnet("10.0.0.0/8").overlaps(four) && four.overlaps(subnet("10.0.0.0/8")));
        assert!(!subnet("10.86.0.0/16").overlaps(four));
    }

    #[test]
    fn invalid_subnets_are_refused() {
        for bad in ["", "10.0.0.0", "10.0.0.0/33", "10.0.0/8", "fd00::/129", "10.0.0.0/-1", "a/8"] {
            assert!(bad.parse::<Subnet>().is_err(), "{bad:?}");
        }
    }
}
