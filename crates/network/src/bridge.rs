//! The bridge network: a veth pair for each pod, one end on a bridge of the node.

mod driver;
mod options;
mod sysctl;

pub(crate) use driver::{Bridges, Endpoint, Pod, default_mac, host_link, is_host_link};
pub(crate) use options::BridgeOptions;
pub(crate) use sysctl::restore_forwarding;
