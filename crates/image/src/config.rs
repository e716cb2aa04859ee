//! Settings of registries, from the configuration file and from the caller of a pull.

use std::{collections::BTreeMap, fmt, path::PathBuf, time::Duration};

use crate::Error;

/// The section `[registries]` of the configuration.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Registries {
    /// Mirrors by registry host (`docker.io`): base URLs, tried in order before the host itself. The scheme defaults to
    /// `https`, and to `http` on loopback. The key `*` applies to every host without its own entry.
    pub mirrors: BTreeMap<String, Vec<String>>,
    /// Hosts (`host` or `host:port`) that are accessed by plain HTTP; loopback always is.
    pub plain_http: Vec<String>,
    /// Registry of names without a host; `docker.io` if absent.
    pub default_registry: Option<String>,
    /// Directory with settings of hosts in containerd's layout (`certs.d`), read when a pull starts. For the hosts in
    /// it, it takes precedence over `mirrors` and `plain_http`.
    pub config_dir: Option<PathBuf>,
    /// File in the format of Docker's `config.json`. Its `auths` are used for pulls without credentials.
    pub auth_file: Option<PathBuf>,
    /// Largest size of an unpacked layer, in bytes; 128 GiB if absent. It stops archives that are made to fill a disk.
    pub max_layer_bytes: Option<u64>,
    /// Limits of downloads.
    #[serde(skip)]
    pub transfers: TransferLimits,
}

/// Limits of downloads.
#[derive(Clone, Debug)]
pub struct TransferLimits {
    /// Lowest rate. A download that is slower, on average over one `window`, is aborted and retried; after five
    /// failures in a row the next mirror is tried.
    pub bytes_per_second: u64,
    /// Time over which the rate is averaged, and the longest time without data.
    pub window: Duration,
    /// How long a pull without callers continues, so that a caller that retries finds it.
    pub grace: Duration,
}

impl Default for TransferLimits {
    fn default() -> Self {
        Self { bytes_per_second: 4096, window: Duration::from_secs(30), grace: Duration::from_secs(60) }
    }
}

impl Registries {
    /// Returns the registry host of names without a host.
    pub(crate) fn default_host(&self) -> &str {
        self.default_registry.as_deref().unwrap_or("docker.io")
    }

    /// Checks all entries. The error names the first invalid one.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Invalid`].
    pub fn check(&self) -> Result<(), Error> {
        let invalid = |key: &str, value: &str| {
            Error::invalid(format!("registries.{key}: {value:?} is not a host, host:port or http(s):// base URL"))
        };
        for (host, urls) in &self.mirrors {
            if host != "*" && !is_host(host) {
                return Err(invalid("mirrors", host));
            }
            for url in urls {
                let bare = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://")).unwrap_or(url);
                if !is_host(bare.split('/').next().unwrap_or_default()) || bare.contains(['?', '#', '@']) {
                    return Err(invalid("mirrors", url));
                }
            }
        }
        if let Some(bad) = self.plain_http.iter().find(|host| !is_host(host)) {
            return Err(invalid("plain_http", bad));
        }
        match &self.default_registry {
            Some(host) if !is_host(host) => Err(invalid("default_registry", host)),
            _ => Ok(()),
        }
    }
}

fn is_host(host: &str) -> bool {
    !host.is_empty()
        && host.len() <= 255
        && host.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':' | '[' | ']'))
}

/// Credentials of a pull. They are sent to the registry that the reference names, never to a mirror.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Credentials {
    /// User name for Basic authentication and for the token service.
    pub username: String,
    /// Password for Basic authentication and for the token service.
    pub password: String,
    /// An OAuth2 refresh token, exchanged at the token service.
    pub identity_token: String,
    /// A bearer token, sent as it is.
    pub registry_token: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("username", &self.username).finish_non_exhaustive()
    }
}
