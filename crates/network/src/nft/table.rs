//! Name and family of our table.

use std::{fmt, net::IpAddr, path::Path, sync::Arc};

/// An address family, with the layout of its IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    V4,
    V6,
}

impl Family {
    pub(crate) fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    pub(crate) fn number(self) -> u8 {
        match self {
            Self::V4 => 2,
            Self::V6 => 10,
        }
    }

    /// Returns the length of an address and the offsets of source and destination.
    pub(super) fn layout(self) -> (u32, u32, u32) {
        match self {
            Self::V4 => (4, 12, 16),
            Self::V6 => (16, 8, 24),
        }
    }

    pub(super) fn words(self) -> u32 {
        self.layout().0 / 4
    }

    /// Returns nft's number for the data type of addresses, which `nft list` needs to print the table.
    pub(super) fn address_type(self) -> u32 {
        match self {
            Self::V4 => 7,
            Self::V6 => 8,
        }
    }
}

/// A daemon's table for one family. Each daemon of a node has its own, because a table is always replaced as a whole.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub(crate) family: Family,
    pub(crate) name: Arc<str>,
}

impl Table {
    /// Returns the table of the daemon with this state directory: `pinion` for `/run/pinion`, and for example
    /// `pinion/srv/other` otherwise. Characters that nft does not accept in a name are replaced by `_`.
    pub(crate) fn of(state: &Path, family: Family) -> Self {
        const NAME_MAX: usize = 200;
        let text = state.to_string_lossy();
        let accepted = |c: char| if c.is_ascii_alphanumeric() || "/._-".contains(c) { c } else { '_' };
        let tail: String = text.chars().rev().take(NAME_MAX).map(accepted).collect();
        let path: String = tail.chars().rev().collect();
        let name = if state == Path::new("/run/pinion") { "pinion".into() } else { format!("pinion{path}") };
        Self { family, name: name.into() }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let family = if self.family == Family::V4 { "ip" } else { "ip6" };
        write!(f, "{family} {}", self.name)
    }
}
