//! TLS settings of a client for one host.

use std::path::Path;

use reqwest::{Certificate, ClientBuilder, Identity};

use super::{
    hosts::{Host, bytes},
    response::chain,
};
use crate::Error;

/// Adds the certificate authorities of a host to those of the system, and the client certificate.
pub(crate) fn with_certificates(mut builder: ClientBuilder, host: &Host) -> Result<ClientBuilder, Error> {
    let mut authorities = Vec::new();
    for path in &host.ca {
        let certificates = Certificate::from_pem_bundle(&read(path)?).map_err(|e| invalid(path, &chain(&e)))?;
        if certificates.is_empty() {
            return Err(invalid(path, &"contains no certificate"));
        }
        authorities.extend(certificates);
    }
    if !authorities.is_empty() {
        builder = builder.tls_certs_merge(authorities);
    }
    // TLS presents only one client certificate: the first, because the operator decides the order.
    if let Some((certificate, key)) = host.client.first() {
        let mut pem = read(certificate)?;
        if let Some(key) = key {
            pem.push(b'\n');
            pem.extend(read(key)?);
        }
        builder = builder.identity(Identity::from_pem(&pem).map_err(|e| invalid(certificate, &chain(&e)))?);
    }
    Ok(if host.skip_verify { builder.tls_danger_accept_invalid_certs(true) } else { builder })
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    bytes(path).map_err(|error| invalid(path, &error))
}

fn invalid(path: &Path, reason: &dyn std::fmt::Display) -> Error {
    Error::invalid(format!("certificate {}: {reason}", path.display()))
}
