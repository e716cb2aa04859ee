//! Allocates addresses from ranges of this host, compatible with CNI's `host-local`.

mod lease;
mod range;

pub(crate) use lease::Leases;
pub(crate) use range::{HostLocal, Range, Route};
