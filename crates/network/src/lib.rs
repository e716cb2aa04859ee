//! Pod networks.
#![forbid(unsafe_code)]

mod attachment;
mod config;
mod error;
mod network;

pub use attachment::{Attachment, Counters, PodRef, PortMapping, Protocol};
pub use config::Config;
pub use error::Error;
pub use network::Network;
