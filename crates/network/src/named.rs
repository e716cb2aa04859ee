//! Networks that people create by name (`pinion network create`), as Docker's users know them.
//!
//! ```text
//! NetworkRequest ── parse ──→ Plan ── subnets chosen, id ──→ NetworkDefinition ── file in data_dir, synced
//!                                                                   │
//!                                              render → CNI list of types that run in this process
//! ```
//! A definition outlives a reboot. No kernel object exists until the first pod is attached: then its list is attached,
//! recorded, detached and reconciled like one of the CNI directory. The list is named after the id, so a network that is
//! created again under the same name never gets leases or records of the old one.

mod choice;
mod definition;
mod driver;
mod options;
mod pools;
mod render;
mod request;
mod store;

pub use choice::{HostEntry, NetworkChoice, PodNetworks};
pub(crate) use choice::{interface, parse_mac, selection};
pub use definition::{AddressPool, NetworkDefinition};
pub use driver::Driver;
pub(crate) use options::Options;
pub use pools::DEFAULT_POOLS;
pub(crate) use pools::{Pools, random, unique_local};
pub(crate) use render::{INTERNAL_KEY, NAME_KEY, list, parts};
pub(crate) use request::Plan;
pub use request::{NetworkRequest, SubnetRequest};
pub(crate) use store::{InUse, Store};
