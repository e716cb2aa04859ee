//! Registries: the OCI distribution protocol, as a client that only pulls.
//!
//! A [`Session`] is one pull's view of one repository: the [`endpoint`]s to ask (mirrors in order, then the host), and the
//! tokens it was given on the way. Each endpoint is asked until one answers; only the last error of each is kept, and all
//! of them are told when none answers.

mod auth;
mod blob;
mod client;
mod endpoint;
mod manifest;

pub(crate) use self::{
    client::{Clients, Session},
    manifest::Fetched,
};
