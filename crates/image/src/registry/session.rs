//! The requests of one pull, which respond to challenges and follow redirects.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use reqwest::{
    Client, Method, RequestBuilder, Response, StatusCode, Url,
    header::{ACCEPT, AUTHORIZATION, HeaderMap, LOCATION, RANGE, RETRY_AFTER, WWW_AUTHENTICATE},
};

use super::{
    auth, auth_file,
    clients::Clients,
    endpoint::{Endpoint, may_request, same_server},
    response::{ANSWER_TIMEOUT, chain, read_bounded},
    slots::{Slot, Slots},
};
use crate::{Credentials, Disk, Error, ErrorKind, Reference, Registries};

/// Attempts of one request to which the server responds with an error of its own (429, 5xx).
const ATTEMPTS_MAX: u32 = 4;
/// Longest wait between two attempts, whatever `Retry-After` requests.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// Most redirects that are followed.
const REDIRECTS: usize = 10;

/// The requests of one pull for one repository.
pub(crate) struct Session {
    slots: Arc<Slots>,
    /// The clients, with the settings at the start of the pull.
    clients: Arc<Clients>,
    pub(crate) endpoints: Vec<Endpoint>,
    /// Host in the reference, not that of a mirror.
    pub(crate) host: String,
    pub(crate) repository: String,
    /// Values of `Authorization` by endpoint, once known.
    tokens: Mutex<HashMap<usize, String>>,
}

/// A response, and whether it is from the endpoint's own server or from the target of a redirect.
struct RegistryResponse {
    response: Response,
    by_endpoint: bool,
}

/// A request to a registry.
pub(crate) struct RegistryRequest<'a> {
    pub(crate) method: Method,
    /// Path below the repository: `manifests/latest`.
    pub(crate) path: &'a str,
    pub(crate) accept: &'a str,
    /// Offset of the first byte that is requested.
    pub(crate) from: u64,
}

impl Session {
    /// Returns the limits of transfers.
    pub(super) fn transfers(&self) -> &crate::TransferLimits {
        &self.clients.registries.transfers
    }

    /// Waits for a permit to download from an endpoint.
    pub(super) async fn slot(&self, index: usize) -> Slot {
        self.slots.acquire(&self.endpoints[index].authority()).await
    }

    /// Creates a session, for which it reads the settings of the reference's host on the threads of `settings`.
    pub(crate) async fn open(
        settings: &Disk,
        clients: Arc<Clients>,
        slots: Arc<Slots>,
        reference: &Reference,
        credentials: Option<&Credentials>,
    ) -> Result<Self, Error> {
        let (host, repository) = (reference.host().to_owned(), reference.repository().to_owned());
        let caller_credentials = credentials.cloned();
        settings
            .run(move || {
                let mut endpoints = clients.endpoints(&host)?;
                for endpoint in &mut endpoints {
                    endpoint.credentials = endpoint_credentials(
                        &clients.registries,
                        endpoint,
                        (&host, &repository),
                        caller_credentials.as_ref(),
                    )?;
                }
                Ok(Self { endpoints, host, repository, tokens: Mutex::default(), clients, slots })
            })
            .await
    }

    /// Sends a request to one endpoint. Responds to a challenge once, and retries after a pause when the endpoint is
    /// busy.
    pub(crate) async fn send(&self, index: usize, request: &RegistryRequest<'_>) -> Result<Response, Error> {
        let mut authorized = false;
        let mut attempts = 0;
        loop {
            let RegistryResponse { response, by_endpoint } = self.send_once(index, request).await?;
            match response.status() {
                status if status.is_success() => return Ok(response),
                StatusCode::UNAUTHORIZED if !by_endpoint => return Err(self.redirect_refused(index, &response)),
                StatusCode::UNAUTHORIZED if !authorized => {
                    authorized = true;
                    self.authorize(index, response.headers()).await?;
                }
                status if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS => {
                    attempts += 1;
                    if attempts == ATTEMPTS_MAX {
                        return Err(self.status_error(index, request, response).await);
                    }
                    tokio::time::sleep(retry_delay(response.headers(), attempts)).await;
                }
                _ => return Err(self.status_error(index, request, response).await),
            }
        }
    }

    /// Sends one request and follows its redirects. Only the endpoint's own server gets the token and the configured
    /// headers.
    async fn send_once(&self, index: usize, request: &RegistryRequest<'_>) -> Result<RegistryResponse, Error> {
        let endpoint = &self.endpoints[index];
        let mut url = endpoint.url(&self.repository, request.path);
        for _ in 0..=REDIRECTS {
            let by_endpoint = same_server(&endpoint.base, &url);
            let builder = self.build_request(index, request, url.clone(), by_endpoint)?;
            let response = match tokio::time::timeout(ANSWER_TIMEOUT, builder.send()).await {
                Ok(result) => result.map_err(|cause| unreachable(endpoint, cause))?,
                Err(_) => {
                    let (server, seconds) = (endpoint.display_name(), ANSWER_TIMEOUT.as_secs());
                    return Err(Error::unavailable(format!("registry {server}: request timed out after {seconds} s")));
                }
            };
            match redirect_target(&response) {
                None => return Ok(RegistryResponse { response, by_endpoint }),
                Some(target) => url = self.redirect(endpoint, &url, target)?,
            }
        }
        Err(Error::unavailable(format!("registry {}: more than {REDIRECTS} redirects", endpoint.display_name())))
    }

    fn build_request(
        &self,
        index: usize,
        request: &RegistryRequest<'_>,
        url: Url,
        by_endpoint: bool,
    ) -> Result<RequestBuilder, Error> {
        let endpoint = &self.endpoints[index];
        let mut builder = self.client(endpoint, &url)?.request(request.method.clone(), url);
        if !request.accept.is_empty() {
            builder = builder.header(ACCEPT, request.accept);
        }
        if request.from > 0 {
            builder = builder.header(RANGE, format!("bytes={}-", request.from));
        }
        if !by_endpoint {
            return Ok(builder);
        }
        builder = builder.headers(endpoint.headers.clone());
        let token = self.tokens.lock().unwrap_or_else(PoisonError::into_inner).get(&index).cloned();
        Ok(match token {
            Some(token) => builder.header(AUTHORIZATION, token),
            None => builder,
        })
    }

    /// Returns the target of a redirect, if it may be followed.
    fn redirect(&self, endpoint: &Endpoint, from: &Url, target: &str) -> Result<Url, Error> {
        let refuse = |reason: &str| Error::unavailable(format!("registry {}: {reason}", endpoint.display_name()));
        let url = from.join(target).map_err(|_| refuse("it redirects to an invalid URL"))?;
        match may_request(&self.clients.registries, &url) || same_server(&endpoint.base, &url) {
            true => Ok(url),
            false => Err(refuse("a redirect to plain HTTP is not followed")),
        }
    }

    /// Returns the error for the target of a redirect that requires credentials. Those of the endpoint are not sent to
    /// it.
    fn redirect_refused(&self, index: usize, response: &Response) -> Error {
        let target = response.url().host_str().unwrap_or_default();
        let server = self.endpoints[index].display_name();
        Error::new(
            ErrorKind::Unauthorized,
            format!("registry {server} redirects to {target}, which refuses access; no credentials are sent there"),
        )
    }

    /// Returns the client of the endpoint if it has its own, else the shared one.
    fn client<'a>(&'a self, endpoint: &'a Endpoint, url: &Url) -> Result<&'a Client, Error> {
        endpoint.client.as_ref().map_or_else(|| self.clients.get(url.scheme()), Ok)
    }

    /// Responds to the challenge of an endpoint, for which a token may be requested. Credentials are sent to the host
    /// that they are for, not to its mirrors.
    async fn authorize(&self, index: usize, headers: &HeaderMap) -> Result<(), Error> {
        let endpoint = &self.endpoints[index];
        let credentials = endpoint.credentials.as_ref();
        let challenges = headers.get_all(WWW_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok());
        let Some(challenge) = auth::choose(challenges) else {
            return Err(auth::refused(endpoint, credentials, "it offers no supported way to authenticate"));
        };
        let value = match challenge {
            auth::Challenge::Basic => {
                auth::basic(credentials).ok_or_else(|| auth::refused(endpoint, credentials, ""))?
            }
            auth::Challenge::Bearer(bearer) => {
                if !may_request(&self.clients.registries, &bearer.realm) && !same_server(&endpoint.base, &bearer.realm)
                {
                    return Err(auth::refused(endpoint, credentials, "its token service is on plain HTTP"));
                }
                let client = self.client(endpoint, &bearer.realm)?;
                let token_request = auth::TokenRequest { endpoint, bearer: &bearer, repository: &self.repository };
                auth::token(client, token_request, credentials).await?
            }
        };
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner).insert(index, value);
        Ok(())
    }

    /// Returns the error for a status that is not a success, with a limited part of the registry's text.
    async fn status_error(&self, index: usize, request: &RegistryRequest<'_>, response: Response) -> Error {
        let endpoint = &self.endpoints[index];
        let status = response.status();
        let kind = match status {
            StatusCode::NOT_FOUND => ErrorKind::NotFound,
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => ErrorKind::Unauthorized,
            status if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS => ErrorKind::Unavailable,
            _ => ErrorKind::Invalid,
        };
        let object = request.path.split('/').next().unwrap_or_default().trim_end_matches('s');
        let server = endpoint.display_name();
        if kind == ErrorKind::NotFound {
            return Error::new(kind, format!("{object} not found at registry {server}"));
        }
        if kind == ErrorKind::Unauthorized {
            return auth::refused(endpoint, endpoint.credentials.as_ref(), "");
        }
        let body = read_bounded(response, 4096).await.unwrap_or_default();
        let text: String = String::from_utf8_lossy(&body).chars().filter(|c| !c.is_control()).take(300).collect();
        Error::new(kind, format!("registry {server} returned {status} for the {object}: {text}"))
    }
}

/// Returns the credentials for an endpoint. Those of the pull's caller are for the registry itself, never for its
/// mirrors; all others are in the file of credentials.
fn endpoint_credentials(
    registries: &Registries,
    endpoint: &Endpoint,
    (host, repository): (&str, &str),
    caller_credentials: Option<&Credentials>,
) -> Result<Option<Credentials>, Error> {
    match (&endpoint.mirror_of, caller_credentials, &registries.auth_file) {
        (None, Some(credentials), _) => Ok(Some(credentials.clone())),
        (_, _, None) => Ok(None),
        (None, None, Some(file)) => auth_file::find(file, host, repository),
        (Some(_), _, Some(file)) => auth_file::find(file, &endpoint.authority(), repository),
    }
}

/// Returns the target of a redirect.
fn redirect_target(response: &Response) -> Option<&str> {
    match response.status().as_u16() {
        301 | 302 | 303 | 307 | 308 => response.headers().get(LOCATION)?.to_str().ok(),
        _ => None,
    }
}

fn retry_delay(headers: &HeaderMap, attempts: u32) -> Duration {
    let requested =
        headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok()).map(Duration::from_secs);
    requested.unwrap_or(Duration::from_millis(250 << attempts)).min(WAIT_MAX)
}

fn unreachable(endpoint: &Endpoint, cause: reqwest::Error) -> Error {
    let server = endpoint.display_name();
    let operation = if cause.is_connect() { "connect to" } else { "send a request to" };
    // The URL is left out, because its query may contain a secret.
    Error::unavailable(format!("{operation} registry {server}: {}", chain(&cause.without_url())))
}
