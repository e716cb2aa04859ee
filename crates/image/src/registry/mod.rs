//! Registries: the OCI distribution protocol, as a client that only pulls.
//!
//! A [`Session`] is one pull's view of one repository: the [`endpoint`]s to ask (mirrors in order, then the host), and
//! the tokens it was given on the way. Each endpoint is asked until one answers; only the last error of each is kept,
//! and all of them are told when none answers. What hosts there are, and how to speak to them, the configuration says
//! and a directory in containerd's layout ([`hosts`]), read when a pull begins and kept as long as its files do not
//! change ([`known`]).

mod auth;
mod auth_file;
mod blob;
mod client;
mod endpoint;
mod hosts;
mod known;
mod manifest;
mod tls;

pub(crate) use self::{
    blob::BlobStream,
    client::{Clients, Session},
    manifest::Fetched,
};
