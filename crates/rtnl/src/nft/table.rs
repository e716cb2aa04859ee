//! Name and family of a table.

use std::{fmt, net::IpAddr, sync::Arc};

/// An address family, with the layout of its IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4 (`ip`).
    V4,
    /// IPv6 (`ip6`).
    V6,
    /// IPv4 and IPv6 (`inet`).
    Inet,
    /// Frames on bridges (`bridge`).
    Bridge,
}

impl Family {
    /// Returns the family of an address.
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    /// Returns the number of the family (`NFPROTO_*`).
    pub fn number(self) -> u8 {
        match self {
            Self::V4 => 2,
            Self::V6 => 10,
            Self::Inet => 1,
            Self::Bridge => 7,
        }
    }

    /// Returns the length of an address and the offsets of source and destination. For frames these are MAC addresses
    /// in the link header; for `inet` those of IPv6.
    pub fn layout(self) -> (u32, u32, u32) {
        match self {
            Self::V4 => (4, 12, 16),
            Self::V6 | Self::Inet => (16, 8, 24),
            Self::Bridge => (6, 6, 0),
        }
    }

    /// Returns the number of registers that an address needs.
    pub fn words(self) -> u32 {
        self.layout().0.div_ceil(4)
    }

    /// Returns nft's number for the data type of addresses, which `nft list` needs to print the table.
    pub fn address_type(self) -> u32 {
        match self {
            Self::V4 => 7,
            Self::V6 | Self::Inet => 8,
            Self::Bridge => 9,
        }
    }
}

/// A table.
#[derive(Clone, Debug)]
pub struct Table {
    /// Family of the table.
    pub family: Family,
    /// Name of the table.
    pub name: Arc<str>,
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let family = match self.family {
            Family::V4 => "ip",
            Family::V6 => "ip6",
            Family::Inet => "inet",
            Family::Bridge => "bridge",
        };
        write!(f, "{family} {}", self.name)
    }
}
