//! Places: where the programs of a measurement run.

use std::net::Ipv4Addr;

use super::{guest::Guest, namespace::NamespacePlace, running::Running};
use crate::engine::Failure;

/// Where programs run.
pub(super) enum Place {
    /// A namespace of the node.
    Namespace(NamespacePlace),
    /// A guest.
    Guest(Guest),
}

impl Place {
    /// Returns the first IPv4 address of a link.
    pub(super) fn address(&self, link: &str) -> Result<Ipv4Addr, Failure> {
        match self {
            Self::Namespace(place) => place.address(link),
            Self::Guest(guest) => guest.address(),
        }
    }

    /// Starts a program in this place, on one processor if one is given: a guest has its own, and is bound to it as a whole. It is
    /// ended after a number of seconds: 124 is its exit code then.
    pub(super) fn spawn(&self, words: &[&str], processor: Option<usize>, seconds: u64) -> Result<Running, Failure> {
        match self {
            Self::Namespace(place) => place.spawn(words, processor, seconds),
            Self::Guest(guest) => guest.spawn(words, processor, seconds),
        }
    }
}
