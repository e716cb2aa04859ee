//! Operations on networks that people create by name ([`crate::named`]).

mod connect;
mod create;
mod inspect;
mod remove;

pub use inspect::NetworkEndpoint;
