//! A client for one host, with its certificates.

use std::path::Path;

use reqwest::{Certificate, ClientBuilder, Identity};

use super::{
    client::chain,
    hosts::{Host, bytes},
};
use crate::Error;

/// Adds a host's authorities to the system's, and what we show of ourselves.
pub(crate) fn with_certificates(mut builder: ClientBuilder, host: &Host) -> Result<ClientBuilder, Error> {
    let mut authorities = Vec::new();
    for path in &host.ca {
        let found = Certificate::from_pem_bundle(&read(path)?).map_err(|e| wrong(path, &chain(&e)))?;
        if found.is_empty() {
            return Err(wrong(path, &"holds no certificate"));
        }
        authorities.extend(found);
    }
    if !authorities.is_empty() {
        builder = builder.tls_certs_merge(authorities);
    }
    // One is all that TLS shows; the first, as the order is the operator's.
    if let Some((certificate, key)) = host.client.first() {
        let mut pem = read(certificate)?;
        if let Some(key) = key {
            pem.push(b'\n');
            pem.extend(read(key)?);
        }
        builder = builder.identity(Identity::from_pem(&pem).map_err(|e| wrong(certificate, &chain(&e)))?);
    }
    Ok(if host.skip_verify { builder.tls_danger_accept_invalid_certs(true) } else { builder })
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    bytes(path).map_err(|error| wrong(path, &error))
}

fn wrong(path: &Path, why: &dyn std::fmt::Display) -> Error {
    Error::invalid(format!("certificate {}: {why}", path.display()))
}
