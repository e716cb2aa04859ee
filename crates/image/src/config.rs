//! What the configuration file and the caller decide about registries.

use std::{collections::BTreeMap, fmt, path::PathBuf, time::Duration};

use crate::Error;

/// `[registries]` of the configuration.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Registries {
    /// Mirrors by registry host (`docker.io`): base URLs, tried in order before the host itself. A URL without a scheme
    /// is `https`, on loopback `http`; the key `*` is for every host that has no entry of its own.
    pub mirrors: BTreeMap<String, Vec<String>>,
    /// Hosts (`host` or `host:port`) that are spoken to by plain HTTP; loopback always is.
    pub plain_http: Vec<String>,
    /// Registry of names without a host; `docker.io` if absent.
    pub default_registry: Option<String>,
    /// Directory of hosts' settings in containerd's layout (`certs.d`), read when a pull begins. For the hosts it names
    /// it goes before `mirrors` and `plain_http`.
    pub config_dir: Option<PathBuf>,
    /// A file like Docker's `config.json` with `auths`, for pulls that bring no credentials.
    pub auth_file: Option<PathBuf>,
    /// Largest layer, unpacked, in bytes; 128 GiB if absent. It stops archives that are made to fill a disk.
    pub max_layer_bytes: Option<u64>,
    /// Bounds of downloads.
    #[serde(skip)]
    pub transfers: Transfers,
}

/// Bounds of downloads.
#[derive(Clone, Debug)]
pub struct Transfers {
    /// A download that brings less, on average over one `window`, is broken off and retried; after five times in a row
    /// the next mirror is tried.
    pub bytes_per_second: u64,
    /// How long a download may be slower, or silent.
    pub window: Duration,
    /// How long a pull whose last caller hung up waits for that caller to return.
    pub grace: Duration,
}

impl Default for Transfers {
    fn default() -> Self {
        Self { bytes_per_second: 4096, window: Duration::from_secs(30), grace: Duration::from_secs(60) }
    }
}

impl Registries {
    /// The host that names without one belong to.
    pub(crate) fn default_host(&self) -> &str {
        self.default_registry.as_deref().unwrap_or("docker.io")
    }

    /// Names the first entry that can't be right.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Invalid`].
    pub fn check(&self) -> Result<(), Error> {
        let wrong = |what: &str, value: &str| {
            Error::invalid(format!("registries.{what}: {value:?} is not a host, host:port or http(s):// base URL"))
        };
        for (host, urls) in &self.mirrors {
            if host != "*" && !is_host(host) {
                return Err(wrong("mirrors", host));
            }
            for url in urls {
                let bare = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://")).unwrap_or(url);
                if !is_host(bare.split('/').next().unwrap_or_default()) || bare.contains(['?', '#', '@']) {
                    return Err(wrong("mirrors", url));
                }
            }
        }
        if let Some(bad) = self.plain_http.iter().find(|host| !is_host(host)) {
            return Err(wrong("plain_http", bad));
        }
        match &self.default_registry {
            Some(host) if !is_host(host) => Err(wrong("default_registry", host)),
            _ => Ok(()),
        }
    }
}

fn is_host(host: &str) -> bool {
    !host.is_empty()
        && host.len() <= 255
        && host.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':' | '[' | ']'))
}

/// What a registry is told about who asks. Sent to the registry that the reference names, never to a mirror.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Credentials {
    /// For Basic, and for the token service.
    pub username: String,
    /// For Basic, and for the token service.
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
