//! Endpoints of a repository, and their schemes: mirrors in order, then the host.

use std::net::IpAddr;

use reqwest::{Client, Url, header::HeaderMap};

use crate::{Credentials, Error, Registries};

/// One server that may have the repository.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    /// `scheme://host[:port][/prefix]/v2/`.
    pub(crate) base: Url,
    /// Host of the reference, if this is a mirror of it.
    pub(crate) mirror_of: Option<String>,
    /// Its own HTTP client, if it has its own certificates.
    pub(crate) client: Option<Client>,
    /// Headers that are sent with every request.
    pub(crate) headers: HeaderMap,
    /// Whether blobs, and manifests by digest, may be requested from it.
    pub(crate) pulls: bool,
    /// Whether it may resolve tags.
    pub(crate) resolves: bool,
    /// Credentials for it.
    pub(crate) credentials: Option<Credentials>,
}

impl Endpoint {
    /// Creates an endpoint that may serve all requests, with the shared client.
    pub(super) fn plain(base: Url, mirror_of: Option<String>) -> Self {
        let (client, headers, credentials) = (None, HeaderMap::new(), None);
        Self { base, mirror_of, client, headers, pulls: true, resolves: true, credentials }
    }

    /// Returns `host` or `host:port`, the name of its directory of settings.
    pub(super) fn authority(&self) -> String {
        let host = self.base.host_str().unwrap_or_default();
        self.base.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
    }

    /// Returns `host:port`, for messages.
    pub(crate) fn display_name(&self) -> String {
        let host = self.base.host_str().unwrap_or_default();
        let authority = match self.base.port_or_known_default() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        };
        match &self.mirror_of {
            Some(host) => format!("{authority} (mirror of {host})"),
            None => authority,
        }
    }

    /// Returns the URL of a path below the repository. For a mirror the query `ns` names the registry, as in
    /// containerd.
    pub(crate) fn url(&self, repository: &str, rest: &str) -> Url {
        let mut url = self.base.clone();
        url.set_path(&format!("{}{repository}/{rest}", self.base.path()));
        if let Some(host) = &self.mirror_of {
            url.query_pairs_mut().append_pair("ns", host);
        }
        url
    }
}

/// Returns the endpoints of a registry host.
pub(crate) fn endpoints(registries: &Registries, host: &str) -> Result<Vec<Endpoint>, Error> {
    let mirrors = registries.mirrors.get(host).or_else(|| registries.mirrors.get("*"));
    let mut endpoints = Vec::new();
    for mirror in mirrors.into_iter().flatten() {
        endpoints.push(Endpoint::plain(base(registries, mirror)?, Some(host.to_owned())));
    }
    endpoints.push(Endpoint::plain(base(registries, server(host))?, None));
    Ok(endpoints)
}

/// Returns the server of the registry with this name.
pub(super) fn server(host: &str) -> &str {
    if host == "docker.io" { "registry-1.docker.io" } else { host }
}

/// Whether both URLs have the same server and scheme.
pub(super) fn same_server(one: &Url, other: &Url) -> bool {
    one.scheme() == other.scheme()
        && one.host_str() == other.host_str()
        && one.port_or_known_default() == other.port_or_known_default()
}

pub(super) fn base(registries: &Registries, text: &str) -> Result<Url, Error> {
    let text = text.trim_end_matches('/');
    let url = match text.starts_with("http://") || text.starts_with("https://") {
        true => format!("{text}/v2/"),
        false => {
            let scheme = if is_plain(registries, text) { "http" } else { "https" };
            format!("{scheme}://{text}/v2/")
        }
    };
    url.parse().map_err(|cause| Error::invalid(format!("registry {text}: not a host or URL: {cause}")))
}

/// Whether a host may be accessed without TLS: on loopback, or if the configuration allows it.
fn is_plain(registries: &Registries, authority: &str) -> bool {
    let authority = authority.split('/').next().unwrap_or_default();
    let name = match authority.rfind(':') {
        Some(at) if !authority[at..].contains(']') => &authority[..at],
        _ => authority,
    };
    registries.plain_http.iter().any(|plain| plain == authority || plain == name) || is_loopback(name)
}

fn is_loopback(name: &str) -> bool {
    let address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    name == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// Whether the URL of a redirect or a token service may be requested: over TLS, or if the host may be accessed without.
pub(crate) fn may_request(registries: &Registries, url: &Url) -> bool {
    match url.scheme() {
        "https" => true,
        "http" => {
            let host = url.host_str().unwrap_or_default();
            let authority = url.port().map_or(host.to_owned(), |port| format!("{host}:{port}"));
            is_plain(registries, &authority) || is_configured(registries, url)
        }
        _ => false,
    }
}

/// Whether this is a mirror that the configuration has with `http://`.
fn is_configured(registries: &Registries, url: &Url) -> bool {
    registries.mirrors.values().flatten().filter_map(|mirror| mirror.parse::<Url>().ok()).any(|mirror| {
        mirror.scheme() == "http"
            && mirror.host_str() == url.host_str()
            && mirror.port_or_known_default() == url.port_or_known_default()
    })
}

#[cfg(test)]
mod tests {
    use super::{endpoints, may_request};
    use crate::Registries;

    fn bases(registries: &Registries, host: &str) -> Vec<String> {
        endpoints(registries, host).unwrap().iter().map(|endpoint| endpoint.base.to_string()).collect()
    }

    #[test]
    fn mirrors_come_first_and_only_loopback_is_plain() {
        let mut registries = Registries::default();
        registries.mirrors.insert("docker.io".into(), vec!["127.0.0.1:5000".into(), "https://m.example/hub/".into()]);
        assert_eq!(
            bases(&registries, "docker.io"),
            ["http://127.0.0.1:5000/v2/", "https://m.example/hub/v2/", "https://registry-1.docker.io/v2/"]
        );
        assert_eq!(bases(&registries, "localhost:5000"), ["http://localhost:5000/v2/"]);
        assert_eq!(bases(&registries, "[::1]:5000"), ["http://[::1]:5000/v2/"]);
        assert_eq!(bases(&registries, "10.0.0.1:5000"), ["https://10.0.0.1:5000/v2/"]);
        registries.plain_http.push("10.0.0.1:5000".into());
        assert_eq!(bases(&registries, "10.0.0.1:5000"), ["http://10.0.0.1:5000/v2/"]);
        assert_eq!(bases(&registries, "localhost.evil.example"), ["https://localhost.evil.example/v2/"]);
    }

    #[test]
    fn redirects_from_tls_to_plain_http_are_refused() {
        let registries = Registries::default();
        assert!(may_request(&registries, &"https://cdn.example/x".parse().unwrap()));
        assert!(may_request(&registries, &"http://127.0.0.1:1/x".parse().unwrap()));
        assert!(!may_request(&registries, &"http://cdn.example/x".parse().unwrap()));
        assert!(!may_request(&registries, &"file:///etc/passwd".parse().unwrap()));
    }
}
