//! The settings of registries, and what is kept for them between pulls: HTTP clients and endpoints.

use std::sync::{Arc, OnceLock};

use reqwest::Client;

use super::{endpoint::Endpoint, endpoint_cache::EndpointCache, http_client};
use crate::{Error, Registries};

/// HTTP clients, which are created on first use: the one with TLS reads the system's certificates.
pub(crate) struct Clients {
    pub(crate) registries: Arc<Registries>,
    plain: OnceLock<Client>,
    tls: OnceLock<Client>,
    endpoint_cache: EndpointCache,
}

impl Clients {
    pub(crate) fn new(registries: &Registries) -> Self {
        Self {
            registries: Arc::new(registries.clone()),
            plain: OnceLock::new(),
            tls: OnceLock::new(),
            endpoint_cache: EndpointCache::default(),
        }
    }

    /// Returns the endpoints of a registry host, in the order in which they are to be tried.
    ///
    /// # Errors
    /// A file of the host is not valid or cannot be read; the message names it.
    pub(super) fn endpoints(&self, host: &str) -> Result<Vec<Endpoint>, Error> {
        self.endpoint_cache.endpoints(&self.registries, host)
    }

    pub(super) fn get(&self, scheme: &str) -> Result<&Client, Error> {
        let cell = if scheme == "https" { &self.tls } else { &self.plain };
        if let Some(client) = cell.get() {
            return Ok(client);
        }
        let client = if scheme == "https" { http_client::with_system_certificates()? } else { http_client::plain()? };
        Ok(cell.get_or_init(|| client))
    }
}
