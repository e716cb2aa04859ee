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
mod overlay_store;
mod pools;
mod render;
mod request;
mod store;

pub use choice::{HostEntry, NetworkChoice, PodNetworks};
pub(crate) use choice::{interface, parse_mac, selection};
pub use definition::{AddressPool, NetworkDefinition};
pub(crate) use definition::{is_hex_id, list_name, new_id, now};
pub use driver::Driver;
pub(crate) use options::{ENCRYPTED, Options, OverlaySettings, SUBNET_LENGTH, VNI};
pub(crate) use overlay_store::OverlayStore;
pub use pools::DEFAULT_POOLS;
pub(crate) use pools::{Pools, random, unique_local};
pub(crate) use render::{INTERNAL_KEY, NAME_KEY, Surroundings, list, parts};
pub use request::{NetworkRequest, SubnetRequest};
pub(crate) use request::{Plan, is_name};
pub(crate) use store::{InUse, Store};
