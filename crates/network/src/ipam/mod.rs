//! Addresses from ranges on this host, in the way and the file format of CNI's `host-local`.

mod lease;
mod range;

pub(crate) use lease::Leases;
pub(crate) use range::{HostLocal, Range, Route};
