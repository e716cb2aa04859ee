//! A DNS resolver for each pod of a named network. It listens at 127.0.0.11:53 in the pod's network namespace, but runs
//! in the daemon: no process and no thread belongs to a pod.
//!
//! ```text
//! query ── parse ──→ name or address of a network of the pod ──→ response from memory
//!                └──→ anything else ──→ forwarded to the node's resolvers, or those that the pod requested
//! ```
//!
//! # Bounds
//! Queries come from containers, which are hostile. A message has at most 4 KiB, one question and no compressed name.
//! A pod is served at most 2000 queries a second: the rest waits in its socket's buffer, where the kernel drops what does
//! not fit. It has at most 32 forwarded queries in flight, and 8 connections of TCP, which end after 10 s without
//! progress. A query that exceeds this is dropped, as DNS permits. No pod waits for another one: responses from memory
//! wait for nothing, and the limit of forwarded queries of all pods is 32 times that of one.
//!
//! Source: RFC 1035, RFC 3596 (AAAA), RFC 6891 (EDNS), RFC 7766 (TCP).
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod answer;
mod forward;
mod node_servers;
mod pace;
mod reverse;
mod server;
mod state;
mod tcp;
mod udp;
pub mod wire;

use std::net::{IpAddr, Ipv4Addr};

pub use node_servers::{NodeFile, read_node_file};
pub use server::Resolver;
pub use state::Shared;

/// Address of the resolver in a pod, as in Docker.
pub const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 11));
/// Port of DNS.
pub const PORT: u16 = 53;

/// Names that a resolver knows. Must not block.
pub trait Names: Send + Sync + 'static {
    /// Returns the addresses of a name in lower case, without the final period; `None` if the name is unknown.
    fn addresses(&self, name: &str) -> Option<Vec<IpAddr>>;
    /// Returns the name of an address.
    fn name_of(&self, address: IpAddr) -> Option<String>;
    /// Reports whether other names may be looked up outside. False for a pod of internal networks only.
    fn is_forwarding(&self) -> bool;
}
