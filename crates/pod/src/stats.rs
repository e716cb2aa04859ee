//! What pods and containers use.
//!
//! ```text
//!            few objects: measured now ────────────────┐
//! request ──▶                                          ├─▶ samples ──▶ answer
//!            many: the samples, each with its time ────┘      ▲
//!                    └─ asks for a round ─▶ thread ───────────┘  a round now and then, while somebody asks
//! ```
//! # Cost
//! To measure a container is some fifteen small reads of descriptors that are kept open, 20 to 40 µs in all. So a
//! request for as many as that takes [3 ms](sampler) for is measured at once, and its figures are of that moment: the
//! one container of `ContainerStats`, the hundred of a usual node. For a thousand it would take longer than anybody
//! wants to wait for a list; they are answered from samples that a thread takes in the background: at most 2 % of one
//! core, every 1 to 10 seconds, and only while somebody asked within the last two minutes. Every sample tells its time.
//!
//! No request walks a tree: what needs a walk or the opening of files (processes, their descriptors, the records of
//! v1's memory controller) is looked at every ten seconds at most ([`Occasional`]), writable layers are sampled by
//! [`image`], and the interfaces of all bridged pods are one question to the kernel, on the node.
//!
//! A container that cannot be measured is left out; it is nobody else's matter.

mod hold;
mod list;
mod measure;
mod network;
mod occasional;
mod rate;
mod sample;
mod sampler;

pub use hold::{Hold, Mark, Sampled};
pub use occasional::{HugePages, Occasional};
pub use sample::{ContainerStats, SandboxSample, SandboxStats};
pub(crate) use sampler::Sampler;
