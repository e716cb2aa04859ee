//! HTTP clients with their timeouts.

use std::{sync::Once, time::Duration};

use reqwest::{Client, ClientBuilder, redirect};

use super::{hosts::Host, response::chain, tls::with_certificates};
use crate::Error;

/// Timeout for connecting, including TLS.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// Timeout without a byte from the server.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// Creates a client without TLS.
pub(crate) fn plain() -> Result<Client, Error> {
    build(builder().tls_certs_only([]))
}

/// Creates a client that trusts the system's certificates, which it reads.
pub(crate) fn with_system_certificates() -> Result<Client, Error> {
    build(builder())
}

/// Creates a client for one host, with its certificates.
pub(crate) fn for_host(host: &Host) -> Result<Client, Error> {
    build(with_certificates(builder(), host)?)
}

fn builder() -> ClientBuilder {
    static PROVIDER: Once = Once::new();
    PROVIDER.call_once(|| {
        // This fails only if a provider was installed already, which serves as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
    Client::builder()
        .user_agent(concat!("pinion/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(CONNECT_TIMEOUT)
        .read_timeout(IDLE_TIMEOUT)
        // `Session::send_once` follows redirects, because it knows which server may get credentials.
        .redirect(redirect::Policy::none())
}

fn build(builder: ClientBuilder) -> Result<Client, Error> {
    builder.build().map_err(|cause| Error::system(format!("set up TLS: {}; install ca-certificates", chain(&cause))))
}
