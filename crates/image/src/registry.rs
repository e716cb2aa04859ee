//! Registries: a client of the OCI distribution protocol that only pulls.
//!
//! A [`Session`] is one pull's view of one repository: the [`endpoint`]s to try (mirrors in order, then the host), and
//! the tokens that it received. Endpoints are tried until one succeeds; if none does, the error has the last error of
//! each. The hosts and their settings are in the configuration and in a directory in containerd's layout ([`hosts`]),
//! which is read when a pull starts and cached until one of its files changes ([`endpoint_cache`]).

mod auth;
mod auth_file;
mod blob;
mod clients;
mod endpoint;
mod endpoint_cache;
mod hosts;
mod http_client;
mod manifest;
mod response;
mod session;
mod slots;
mod tls;

pub(crate) use self::{blob::BlobStream, clients::Clients, manifest::FetchedManifest, session::Session, slots::Slots};
