//! HTTP: clients with their timeouts, and requests that are answered with what the registry asks for.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, Once, OnceLock, PoisonError},
    time::Duration,
};

use reqwest::{
    Client, ClientBuilder, Method, RequestBuilder, Response, StatusCode, Url,
    header::{ACCEPT, AUTHORIZATION, HeaderMap, LOCATION, RANGE, RETRY_AFTER, WWW_AUTHENTICATE},
    redirect,
};

use super::{
    auth,
    endpoint::{Endpoint, may_visit, same_server},
    hosts::Host,
    known::Known,
    tls::with_certificates,
};
use crate::{Credentials, Error, ErrorKind, Reference, Registries};

/// To connect, TLS included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// Without a byte from the server.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// To answer one request: status and headers; and for the whole of a small body.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// Tries of one request that the server itself could not answer (429, 5xx).
const TRIES: u32 = 4;
/// Longest wait between two tries, whatever `Retry-After` says.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// Redirects followed.
const REDIRECTS: usize = 10;

/// HTTP clients, made when first needed: the one with TLS reads the system's certificates.
pub(crate) struct Clients {
    pub(crate) registries: Arc<Registries>,
    plain: OnceLock<Client>,
    tls: OnceLock<Client>,
    pub(super) known: Mutex<HashMap<String, Known>>,
}

impl Clients {
    pub(crate) fn new(registries: &Registries) -> Self {
        Self {
            registries: Arc::new(registries.clone()),
            plain: OnceLock::new(),
            tls: OnceLock::new(),
            known: Mutex::default(),
        }
    }

    fn get(&self, scheme: &str) -> Result<&Client, Error> {
        let cell = if scheme == "https" { &self.tls } else { &self.plain };
        if let Some(client) = cell.get() {
            return Ok(client);
        }
        let builder = Self::builder();
        let client = built(if scheme == "https" { builder } else { builder.tls_certs_only([]) })?;
        Ok(cell.get_or_init(|| client))
    }

    /// A client for this host alone, with its certificates.
    pub(super) fn own(host: &Host) -> Result<Client, Error> {
        built(with_certificates(Self::builder(), host)?)
    }

    fn builder() -> ClientBuilder {
        static PROVIDER: Once = Once::new();
        PROVIDER.call_once(|| {
            // Fails only if the program has installed one already: as good.
            let _ = rustls::crypto::ring::default_provider().install_default();
        });
        Client::builder()
            .user_agent(concat!("pinion/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(IDLE_TIMEOUT)
            // Followed by `Session::send`, which knows what may go to whom.
            .redirect(redirect::Policy::none())
    }
}

fn built(builder: ClientBuilder) -> Result<Client, Error> {
    builder.build().map_err(|cause| Error::system(format!("set up TLS: {}; install ca-certificates", chain(&cause))))
}

/// All causes of an error in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        next = cause.source();
    }
    text
}

/// One pull's conversation about one repository.
pub(crate) struct Session {
    store: Arc<crate::store::Inner>,
    /// As they were when it began.
    clients: Arc<Clients>,
    pub(crate) endpoints: Vec<Endpoint>,
    /// Of the reference, whatever mirrors it has.
    pub(crate) host: String,
    pub(crate) repository: String,
    /// `Authorization` by endpoint, once known.
    tokens: Mutex<HashMap<usize, String>>,
}

/// A response, and whether the endpoint's own server gave it or the target of a redirect.
struct Answered {
    response: Response,
    by_endpoint: bool,
}

/// What is asked for.
pub(crate) struct Ask<'a> {
    pub(crate) method: Method,
    /// Below the repository: `manifests/latest`.
    pub(crate) path: &'a str,
    pub(crate) accept: &'a str,
    /// First byte wanted.
    pub(crate) from: u64,
}

impl Session {
    /// Of the store it fetches for.
    pub(crate) fn figures(&self) -> &crate::Figures {
        &self.store.figures
    }

    /// Bounds of its transfers.
    pub(super) fn transfers(&self) -> &crate::Transfers {
        &self.clients.registries.transfers
    }

    /// Waits for leave to download from an endpoint.
    pub(super) async fn slot(&self, index: usize) -> crate::pull::Slot {
        self.store.pulls.slots.acquire(&self.endpoints[index].authority()).await
    }

    /// Reads the settings of the reference's host.
    pub(crate) async fn open(
        store: Arc<crate::store::Inner>,
        reference: &Reference,
        credentials: Option<&Credentials>,
    ) -> Result<Self, Error> {
        let (host, repository) = (reference.host().to_owned(), reference.repository().to_owned());
        let given = credentials.cloned();
        let settings = store.settings.clone();
        settings
            .run(move || {
                let clients = store.clients();
                let mut endpoints = clients.endpoints(&host)?;
                for endpoint in &mut endpoints {
                    endpoint.credentials = clients.credentials(endpoint, (&host, &repository), given.as_ref())?;
                }
                Ok(Self { endpoints, host, repository, tokens: Mutex::default(), clients, store })
            })
            .await
    }

    /// Asks one endpoint; answers its challenge once, and waits where it says that it is busy.
    pub(crate) async fn ask(&self, index: usize, ask: &Ask<'_>) -> Result<Response, Error> {
        let mut authorized = false;
        let mut tried = 0;
        loop {
            let Answered { response, by_endpoint } = self.send(index, ask).await?;
            match response.status() {
                status if status.is_success() => return Ok(response),
                StatusCode::UNAUTHORIZED if !by_endpoint => return Err(self.refused_elsewhere(index, &response)),
                StatusCode::UNAUTHORIZED if !authorized => {
                    authorized = true;
                    self.authorize(index, response.headers()).await?;
                }
                status if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS => {
                    tried += 1;
                    if tried == TRIES {
                        return Err(self.refused(index, ask, response).await);
                    }
                    tokio::time::sleep(wait(response.headers(), tried)).await;
                }
                _ => return Err(self.refused(index, ask, response).await),
            }
        }
    }

    /// One request, through its redirects. Only the endpoint's own server gets its token and its configured headers.
    async fn send(&self, index: usize, ask: &Ask<'_>) -> Result<Answered, Error> {
        let endpoint = &self.endpoints[index];
        let mut url = endpoint.url(&self.repository, ask.path);
        for _ in 0..=REDIRECTS {
            let by_endpoint = same_server(&endpoint.base, &url);
            let request = self.request(index, ask, url.clone(), by_endpoint)?;
            let response = match tokio::time::timeout(ANSWER_TIMEOUT, request.send()).await {
                Ok(answer) => answer.map_err(|cause| unreachable(endpoint, cause))?,
                Err(_) => {
                    let (shown, seconds) = (endpoint.shown(), ANSWER_TIMEOUT.as_secs());
                    return Err(Error::unavailable(format!("registry {shown} did not answer for {seconds} s")));
                }
            };
            match redirected(&response) {
                None => return Ok(Answered { response, by_endpoint }),
                Some(target) => url = self.redirect(endpoint, &url, target)?,
            }
        }
        Err(Error::unavailable(format!("registry {}: more than {REDIRECTS} redirects", endpoint.shown())))
    }

    fn request(&self, index: usize, ask: &Ask<'_>, url: Url, by_endpoint: bool) -> Result<RequestBuilder, Error> {
        let endpoint = &self.endpoints[index];
        let mut request = self.client(endpoint, &url)?.request(ask.method.clone(), url);
        if !ask.accept.is_empty() {
            request = request.header(ACCEPT, ask.accept);
        }
        if ask.from > 0 {
            request = request.header(RANGE, format!("bytes={}-", ask.from));
        }
        if !by_endpoint {
            return Ok(request);
        }
        request = request.headers(endpoint.headers.clone());
        let token = self.tokens.lock().unwrap_or_else(PoisonError::into_inner).get(&index).cloned();
        Ok(match token {
            Some(token) => request.header(AUTHORIZATION, token),
            None => request,
        })
    }

    /// Where a redirect leads, if it may be followed.
    fn redirect(&self, endpoint: &Endpoint, from: &Url, target: &str) -> Result<Url, Error> {
        let refuse = |why: &str| Error::unavailable(format!("registry {}: {why}", endpoint.shown()));
        let url = from.join(target).map_err(|_| refuse("it redirects to what is not a URL"))?;
        match may_visit(&self.clients.registries, &url) || same_server(&endpoint.base, &url) {
            true => Ok(url),
            false => Err(refuse("a redirect to plain HTTP is not followed")),
        }
    }

    /// The error for a redirect's target that requests credentials. Those of the endpoint are not for it.
    fn refused_elsewhere(&self, index: usize, response: &Response) -> Error {
        let target = response.url().host_str().unwrap_or_default();
        let shown = self.endpoints[index].shown();
        Error::new(
            ErrorKind::Unauthorized,
            format!("registry {shown} redirects to {target}, which refuses access; no credentials are sent there"),
        )
    }

    /// The endpoint's own, or the one for all.
    fn client<'a>(&'a self, endpoint: &'a Endpoint, url: &Url) -> Result<&'a Client, Error> {
        endpoint.client.as_ref().map_or_else(|| self.clients.get(url.scheme()), Ok)
    }

    /// Gets a token as the endpoint's challenge says. Credentials go to the host they are for, not to its mirrors.
    async fn authorize(&self, index: usize, headers: &HeaderMap) -> Result<(), Error> {
        let endpoint = &self.endpoints[index];
        let credentials = endpoint.credentials.as_ref();
        let challenges = headers.get_all(WWW_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok());
        let Some(challenge) = auth::choose(challenges) else {
            return Err(auth::refused(endpoint, credentials, "it names no way to authenticate"));
        };
        let value = match challenge {
            auth::Challenge::Basic => {
                auth::basic(credentials).ok_or_else(|| auth::refused(endpoint, credentials, ""))?
            }
            auth::Challenge::Bearer(bearer) => {
                if !may_visit(&self.clients.registries, &bearer.realm) && !same_server(&endpoint.base, &bearer.realm) {
                    return Err(auth::refused(endpoint, credentials, "its token service is on plain HTTP"));
                }
                let client = self.client(endpoint, &bearer.realm)?;
                let wanted = auth::Wanted { endpoint, bearer: &bearer, repository: &self.repository };
                auth::token(client, wanted, credentials).await?
            }
        };
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner).insert(index, value);
        Ok(())
    }

    /// The error for a status that is no success; says what the registry says, bounded.
    async fn refused(&self, index: usize, ask: &Ask<'_>, response: Response) -> Error {
        let endpoint = &self.endpoints[index];
        let status = response.status();
        let kind = match status {
            StatusCode::NOT_FOUND => ErrorKind::NotFound,
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => ErrorKind::Unauthorized,
            status if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS => ErrorKind::Unavailable,
            _ => ErrorKind::Invalid,
        };
        let what = ask.path.split('/').next().unwrap_or_default().trim_end_matches('s');
        let shown = endpoint.shown();
        if kind == ErrorKind::NotFound {
            return Error::new(kind, format!("{what} not found at registry {shown}"));
        }
        if kind == ErrorKind::Unauthorized {
            return auth::refused(endpoint, endpoint.credentials.as_ref(), "");
        }
        let body = bounded(response, 4096).await.unwrap_or_default();
        let said: String = String::from_utf8_lossy(&body).chars().filter(|c| !c.is_control()).take(300).collect();
        Error::new(kind, format!("registry {shown} answers {status} for the {what}: {said}"))
    }
}

/// The target of a redirect.
fn redirected(response: &Response) -> Option<&str> {
    match response.status().as_u16() {
        301 | 302 | 303 | 307 | 308 => response.headers().get(LOCATION)?.to_str().ok(),
        _ => None,
    }
}

fn wait(headers: &HeaderMap, tried: u32) -> Duration {
    let asked = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok()).map(Duration::from_secs);
    asked.unwrap_or(Duration::from_millis(250 << tried)).min(WAIT_MAX)
}

fn unreachable(endpoint: &Endpoint, cause: reqwest::Error) -> Error {
    let shown = endpoint.shown();
    let what = if cause.is_connect() { "connect to" } else { "ask" };
    // Not the URL: its query may hold a secret.
    Error::unavailable(format!("{what} registry {shown}: {}", chain(&cause.without_url())))
}

/// A body of at most `most` bytes, all of it within a minute.
pub(crate) async fn bounded(response: Response, most: usize) -> Result<Vec<u8>, Error> {
    let whole = tokio::time::timeout(ANSWER_TIMEOUT, whole_body(response, most)).await;
    whole.unwrap_or_else(|_| {
        let seconds = ANSWER_TIMEOUT.as_secs();
        Err(Error::unavailable(format!("the registry's answer did not end within {seconds} s")))
    })
}

async fn whole_body(mut response: Response, most: usize) -> Result<Vec<u8>, Error> {
    let mut body = Vec::new();
    loop {
        match response.chunk().await {
            Ok(Some(chunk)) if body.len() + chunk.len() > most => {
                return Err(Error::invalid(format!("the registry's answer is larger than {most} bytes")));
            }
            Ok(Some(chunk)) => body.extend_from_slice(&chunk),
            Ok(None) => return Ok(body),
            Err(cause) => {
                return Err(Error::unavailable(format!(
                    "the registry's answer broke off: {}",
                    chain(&cause.without_url())
                )));
            }
        }
    }
}
