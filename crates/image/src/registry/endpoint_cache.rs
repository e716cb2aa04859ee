//! Cache of the endpoints of hosts, which are read from the configuration and its directories, and read again when one
//! of their files changed.

use std::{
    collections::HashMap,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use reqwest::Url;

use super::{
    endpoint::{Endpoint, base, endpoints, server},
    hosts::{self, Host},
    http_client,
};
use crate::{Error, Registries};

/// Most hosts in the cache.
const HOSTS_MAX: usize = 1024;

/// The endpoints of a host, and the files they were read from.
struct CachedEndpoints {
    files: Vec<(PathBuf, FileVersion)>,
    endpoints: Vec<Endpoint>,
}

/// Identity of a version of a file: device, inode, size and modification time; `None` if there is no file.
type FileVersion = Option<(u64, u64, u64, i64, i64)>;

fn file_version(path: &Path) -> FileVersion {
    let meta = fs::metadata(path).ok()?;
    Some((meta.dev(), meta.ino(), meta.len(), meta.mtime(), meta.mtime_nsec()))
}

/// The endpoints of hosts, as of the last pull from each.
#[derive(Default)]
pub(crate) struct EndpointCache(Mutex<HashMap<String, CachedEndpoints>>);

impl EndpointCache {
    /// Returns the endpoints of a registry host, in the order in which they are to be tried.
    ///
    /// # Errors
    /// A file of the host is not valid or cannot be read; the message names it.
    pub(super) fn endpoints(&self, registries: &Registries, host: &str) -> Result<Vec<Endpoint>, Error> {
        if let Some(known) = self.cache().get(host)
            && known.files.iter().all(|(path, version)| file_version(path) == *version)
        {
            return Ok(known.endpoints.clone());
        }
        let mut reader = EndpointReader { registries, files: Vec::new() };
        let endpoints = reader.endpoints(host)?;
        let files = reader.files;
        let mut all = self.cache();
        if all.len() >= HOSTS_MAX {
            all.clear();
        }
        all.insert(host.to_owned(), CachedEndpoints { files, endpoints: endpoints.clone() });
        Ok(endpoints)
    }

    fn cache(&self) -> MutexGuard<'_, HashMap<String, CachedEndpoints>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads the endpoints of a host, and records which files they depend on.
struct EndpointReader<'a> {
    registries: &'a Registries,
    files: Vec<(PathBuf, FileVersion)>,
}

impl EndpointReader<'_> {
    fn endpoints(&mut self, host: &str) -> Result<Vec<Endpoint>, Error> {
        let registries = self.registries;
        // The default does not apply to hosts that have mirrors in the configuration.
        let with_default = !registries.mirrors.contains_key(host);
        if let Some(hosts) = self.directory(host, with_default)? {
            let usable = hosts.into_iter().filter(|settings| settings.pulls() || settings.resolves());
            return usable.map(|settings| self.endpoint(&settings, host)).collect();
        }
        let mut all = endpoints(registries, host)?;
        for endpoint in &mut all {
            // The directory of a host decides how it is accessed, wherever the host is configured.
            let authority = if endpoint.mirror_of.is_some() { endpoint.authority() } else { host.to_owned() };
            let settings = self.directory(&authority, false)?.and_then(|mut hosts| hosts.pop());
            if let Some(settings) = settings.filter(|_| endpoint.base.scheme() == "https") {
                endpoint.client = Some(http_client::for_host(&settings)?);
                endpoint.headers = settings.headers;
            }
        }
        Ok(all)
    }

    /// Reads the directory of a host; `None` if there is no such directory.
    fn directory(&mut self, host: &str, with_default: bool) -> Result<Option<Vec<Host>>, Error> {
        let Some(config_dir) = &self.registries.config_dir else { return Ok(None) };
        self.record(config_dir.clone());
        let Some(directory) = hosts::directory(config_dir, host, with_default) else { return Ok(None) };
        self.record(directory.clone());
        self.record(directory.join("hosts.toml"));
        let hosts = hosts::read(&directory, host)?;
        for settings in &hosts {
            settings.ca.iter().for_each(|path| self.record(path.clone()));
            for (certificate, key) in &settings.client {
                self.record(certificate.clone());
                key.iter().for_each(|path| self.record(path.clone()));
            }
        }
        Ok(Some(hosts))
    }

    fn record(&mut self, path: PathBuf) {
        let version = file_version(&path);
        self.files.push((path, version));
    }

    fn endpoint(&self, settings: &Host, host: &str) -> Result<Endpoint, Error> {
        let base = base_of(self.registries, settings)?;
        Ok(Endpoint {
            client: Some(http_client::for_host(settings)?),
            base,
            mirror_of: (!settings.is_server).then(|| host.to_owned()),
            headers: settings.headers.clone(),
            pulls: settings.pulls(),
            resolves: settings.resolves(),
            credentials: None,
        })
    }
}

/// Returns the base URL: `…/v2/`, or with `override_path` the path as it is written.
fn base_of(registries: &Registries, settings: &Host) -> Result<Url, Error> {
    let text = server(settings.url.trim_end_matches('/'));
    // A host with TLS settings is not accessed without TLS, not even on loopback.
    let needs_tls = settings.skip_verify || !settings.ca.is_empty() || !settings.client.is_empty();
    let text = &if needs_tls && !text.contains("://") { format!("https://{text}") } else { text.to_owned() };
    if !settings.override_path {
        return base(registries, text.strip_suffix("/v2").unwrap_or(text));
    }
    let mut url = base(registries, text)?;
    let path = url.path().strip_suffix("v2/").unwrap_or("/").to_owned();
    url.set_path(&path);
    Ok(url)
}
