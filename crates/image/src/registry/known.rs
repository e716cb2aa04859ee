//! The endpoints of hosts, as the configuration and its directories say; read again when one of their files changed.

use std::{
    collections::HashMap,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{MutexGuard, PoisonError},
};

use reqwest::Url;

use super::{
    auth_file,
    client::Clients,
    endpoint::{Endpoint, base, endpoints, server},
    hosts::{self, Host},
};
use crate::{Credentials, Error};

/// Most hosts that are kept.
const HOSTS_MAX: usize = 1024;

/// A host's endpoints, and what they were read from.
pub(crate) struct Known {
    files: Vec<(PathBuf, Mark)>,
    endpoints: Vec<Endpoint>,
}

/// What changes when a file does; `None`: it is not there.
type Mark = Option<(u64, u64, u64, i64, i64)>;

fn mark(path: &Path) -> Mark {
    let meta = fs::metadata(path).ok()?;
    Some((meta.dev(), meta.ino(), meta.len(), meta.mtime(), meta.mtime_nsec()))
}

impl Clients {
    /// The endpoints for a registry host, in the order to ask.
    ///
    /// # Errors
    /// A file of the host is wrong or cannot be read: it is named.
    pub(super) fn endpoints(&self, host: &str) -> Result<Vec<Endpoint>, Error> {
        if let Some(known) = self.known().get(host)
            && known.files.iter().all(|(path, was)| mark(path) == *was)
        {
            return Ok(known.endpoints.clone());
        }
        let mut reading = Reading { clients: self, files: Vec::new() };
        let endpoints = reading.endpoints(host)?;
        let files = reading.files;
        let mut all = self.known();
        if all.len() >= HOSTS_MAX {
            all.clear();
        }
        all.insert(host.to_owned(), Known { files, endpoints: endpoints.clone() });
        Ok(endpoints)
    }

    /// What an endpoint is told about who asks: what the pull brought goes to the registry itself, never to its
    /// mirrors; the rest is in the file of credentials.
    pub(super) fn credentials(
        &self,
        endpoint: &Endpoint,
        (host, repository): (&str, &str),
        given: Option<&Credentials>,
    ) -> Result<Option<Credentials>, Error> {
        match (&endpoint.mirror_of, given, &self.registries.auth_file) {
            (None, Some(given), _) => Ok(Some(given.clone())),
            (_, _, None) => Ok(None),
            (None, None, Some(file)) => auth_file::find(file, host, repository),
            (Some(_), _, Some(file)) => auth_file::find(file, &endpoint.authority(), repository),
        }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What was looked at on the way.
struct Reading<'a> {
    clients: &'a Clients,
    files: Vec<(PathBuf, Mark)>,
}

impl Reading<'_> {
    fn endpoints(&mut self, host: &str) -> Result<Vec<Endpoint>, Error> {
        let registries = &self.clients.registries;
        // A default is not for hosts that the configuration says something of.
        let with_default = !registries.mirrors.contains_key(host);
        if let Some(found) = self.directory(host, with_default)? {
            let given = found.into_iter().filter(|given| given.pulls() || given.resolves());
            return given.map(|given| self.endpoint(&given, host)).collect();
        }
        let mut all = endpoints(registries, host)?;
        for endpoint in &mut all {
            // How to speak to a host its directory says, whoever named it.
            let authority = if endpoint.mirror_of.is_some() { endpoint.authority() } else { host.to_owned() };
            let of_host = self.directory(&authority, false)?.and_then(|mut hosts| hosts.pop());
            if let Some(settings) = of_host.filter(|_| endpoint.base.scheme() == "https") {
                endpoint.client = Some(Clients::own(&settings)?);
                endpoint.headers = settings.headers;
            }
        }
        Ok(all)
    }

    /// What the directory of a host says; `None`: it has none.
    fn directory(&mut self, host: &str, with_default: bool) -> Result<Option<Vec<Host>>, Error> {
        let Some(config_dir) = &self.clients.registries.config_dir else { return Ok(None) };
        self.look(config_dir.clone());
        let Some(directory) = hosts::directory(config_dir, host, with_default) else { return Ok(None) };
        self.look(directory.clone());
        self.look(directory.join("hosts.toml"));
        let found = hosts::read(&directory, host)?;
        for given in &found {
            given.ca.iter().for_each(|path| self.look(path.clone()));
            for (certificate, key) in &given.client {
                self.look(certificate.clone());
                key.iter().for_each(|path| self.look(path.clone()));
            }
        }
        Ok(Some(found))
    }

    fn look(&mut self, path: PathBuf) {
        let mark = mark(&path);
        self.files.push((path, mark));
    }

    fn endpoint(&self, given: &Host, host: &str) -> Result<Endpoint, Error> {
        let base = base_of(self.clients, given)?;
        Ok(Endpoint {
            client: Some(Clients::own(given)?),
            base,
            mirror_of: (!given.is_server).then(|| host.to_owned()),
            headers: given.headers.clone(),
            pulls: given.pulls(),
            resolves: given.resolves(),
            credentials: None,
        })
    }
}

/// `…/v2/`, or with `override_path` the path as it is written.
fn base_of(clients: &Clients, given: &Host) -> Result<Url, Error> {
    let text = server(given.url.trim_end_matches('/'));
    // Where there are certificates, nothing is said without them, on loopback neither.
    let secret = given.skip_verify || !given.ca.is_empty() || !given.client.is_empty();
    let text = &if secret && !text.contains("://") { format!("https://{text}") } else { text.to_owned() };
    if !given.override_path {
        return base(&clients.registries, text.strip_suffix("/v2").unwrap_or(text));
    }
    let mut url = base(&clients.registries, text)?;
    let path = url.path().strip_suffix("v2/").unwrap_or("/").to_owned();
    url.set_path(&path);
    Ok(url)
}
