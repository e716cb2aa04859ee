//! A client of etcd version 3 over its JSON gateway, which every member serves next to gRPC: what networks need to know of
//! each other's nodes.
//!
//! A request goes to one member; if that one does not respond, to the next. Every response, and every wait except that
//! for a change, is bounded.
//!
//! Source: etcd's API reference, version 3.4 and later (`/v3/…`), and the JSON mapping of Protocol Buffers: keys and values
//! are base64, numbers of 64 bits are strings.
#![forbid(unsafe_code)]

mod client;
mod connection;
mod error;
mod message;
mod transaction;
mod watch;

pub use client::{Client, Lease};
pub use connection::Options;
pub use error::Error;
pub use message::{Entry, Range};
pub use transaction::{Change, Changed, Condition};
