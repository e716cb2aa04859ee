//! The Node Resource Interface (NRI): programs of the node's administrator that observe pods and containers and adjust
//! containers before they are created.
//!
//! ```text
//! plugins   the list of plugins; who joins when            round     one request to all of them
//! session   from the connection to the usable plugin       collect   what they respond, merged, or a conflict
//! listen    the socket, and launch: the directory          validate  what is permitted
//! plugin    one plugin: turns, deadlines, policy           required  without which plugins nothing is created
//! connection, wire   ttrpc, two directions over one socket; bounded: decodes messages with few enough entries
//! ```
//!
//! # Rules
//! * **A plugin never blocks the engine.** Every wait for one has a deadline, after which it is disconnected, and no lock
//!   of the engine is held that its own requests need.
//! * **A response counts as a whole or not at all.** One that conflicts with that of another plugin fails the request.
//! * **Required plugins fail closed.** A plugin counts as present once it was synchronized, and a container is created
//!   only if every required one has handled its creation.
//! * **Without plugins an event costs one atomic load.**
//!
//! Protocol: <https://github.com/containerd/nri>, v1alpha1 as of v0.12.5.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod bounded;
mod collect;
mod config;
mod connection;
mod error;
mod event;
mod eviction;
mod launch;
mod listen;
mod owners;
mod plugin;
mod plugins;
mod required;
mod round;
mod session;
mod start;
mod validate;
mod wire;

/// Messages of the protocol.
#[allow(missing_docs, clippy::all)]
pub mod messages {
    include!(concat!(env!("OUT_DIR"), "/nri.v1alpha1.rs"));
}

pub use config::{Config, Restrictions};
pub use error::{Error, ErrorKind};
pub use event::Event;
pub use eviction::PendingEviction;
pub use plugins::{Host, Known, PluginInfo, Plugins};
pub use round::{Changes, Round};
