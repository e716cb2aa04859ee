//! Resource usage of pods and containers.
//!
//! ```text
//!            few objects: measured now ────────────────┐
//! request ──▶                                          ├─▶ samples ──▶ response
//!            many: the samples, each with its time ────┘      ▲
//!                    └─ requests a round ──▶ thread ──────────┘  a round from time to time, while there are requests
//! ```
//! # Cost
//! Measuring a container takes about fifteen small reads of descriptors that are kept open, 20 to 40 µs in total. A
//! request for as many objects as can be measured within [3 ms](sampler) is measured at once, and its values are
//! current: the single container of `ContainerStats`, the hundred containers of a usual node. A thousand containers
//! would take too long for a list request. They are reported from samples that a thread takes in the background: with
//! at most 2 % of one core, every 1 to 10 seconds, and only if there was a request within the last two minutes. Every
//! sample has a timestamp.
//!
//! No request walks a directory tree. What needs a walk, or files to be opened (processes, their descriptors, the
//! records of v1's memory controller), is read at most every ten seconds ([`ExpensiveStats`]); [`image`] samples
//! writable layers; and the interfaces of all bridged pods are read with one request to the kernel, on the node.
//!
//! A container that cannot be measured is omitted, and does not affect others.

mod expensive;
mod guest;
mod known_sample;
mod list;
mod measure;
mod network;
mod rate;
mod sample;
mod sampler;
mod subjects;
mod validity;

pub use expensive::{ExpensiveStats, HugePages};
pub(crate) use list::Statistics;
pub use sample::{ContainerStats, SandboxSample, SandboxStats};
pub use validity::{Generation, StatsList, Validity};
