//! HTTP requests to the members of a cluster.

use std::{
    error::Error as _,
    fs::File,
    io::Read,
    path::{Path, PathBuf},
    sync::{
        Mutex, Once, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use reqwest::{Certificate, Identity, Response, StatusCode, redirect};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::{
    Error,
    message::{AuthenticateResponse, Failure},
};

/// Timeout for connecting to a member.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Timeout of a request to a member.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(8);
/// Idle time after which a connection is probed, so that a watch notices that its member is gone.
const PROBE_INTERVAL: Duration = Duration::from_secs(10);
/// Longest response in bytes.
const RESPONSE_MAX: usize = 32 << 20;
/// Longest file of the configuration in bytes.
const FILE_MAX: u64 = 1 << 20;

/// How a cluster is reached.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Base addresses of members, such as `https://192.0.2.9:2379`.
    pub endpoints: Vec<String>,
    /// File with certificates of authorities in PEM; `None` for those of the system.
    pub ca_file: Option<PathBuf>,
    /// Files with a client certificate and its key in PEM.
    pub client_files: Option<(PathBuf, PathBuf)>,
    /// User, and the file with the password.
    pub user: Option<(String, PathBuf)>,
}

/// Connections to the members of a cluster.
#[derive(Debug)]
pub(crate) struct Connection {
    endpoints: Vec<String>,
    http: reqwest::Client,
    user: Option<(String, PathBuf)>,
    token: Mutex<Option<String>>,
    /// Index of the member that responded last.
    preferred: AtomicUsize,
}

impl Connection {
    pub(crate) fn new(options: Options) -> Result<Self, Error> {
        static PROVIDER: Once = Once::new();
        PROVIDER.call_once(|| {
            // This fails only if a provider was installed already, which serves as well.
            let _ = rustls::crypto::ring::default_provider().install_default();
        });
        let mut builder = reqwest::Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_keepalive(PROBE_INTERVAL)
            .tcp_keepalive_interval(PROBE_INTERVAL)
            .no_proxy()
            .redirect(redirect::Policy::none());
        let tls = |error: reqwest::Error| Error::Tls(chain(&error));
        let is_plain = options.endpoints.iter().all(|endpoint| endpoint.starts_with("http://"));
        if let Some(path) = &options.ca_file {
            builder = builder.tls_certs_only(Certificate::from_pem_bundle(&read(path)?).map_err(tls)?);
        } else if is_plain {
            builder = builder.tls_certs_only([]);
        }
        if let Some((certificate, key)) = &options.client_files {
            let pem = [read(certificate)?, read(key)?].concat();
            builder = builder.identity(Identity::from_pem(&pem).map_err(tls)?);
        }
        let http = builder.build().map_err(tls)?;
        let Options { endpoints, user, .. } = options;
        Ok(Self { endpoints, http, user, token: Mutex::default(), preferred: AtomicUsize::new(0) })
    }

    /// Sends a request and parses the response.
    pub(crate) async fn call<T: DeserializeOwned>(
        &self,
        operation: &'static str,
        path: &str,
        body: &Value,
    ) -> Result<T, Error> {
        let request = async {
            let response = self.open(operation, path, body).await?;
            read_body(response).await.map_err(|reason| Error::Unavailable { operation, reason })
        };
        let late = || Error::Unavailable { operation, reason: format!("no response within {REQUEST_TIMEOUT:?}") };
        let limit = REQUEST_TIMEOUT * u32::try_from(self.endpoints.len()).unwrap_or(1);
        let text = tokio::time::timeout(limit, request).await.map_err(|_| late())??;
        serde_json::from_slice(&text)
            .map_err(|error| Error::Unavailable { operation, reason: format!("its response: {error}") })
    }

    /// Sends a request; returns the response of the first member that responds.
    pub(crate) async fn open(&self, operation: &'static str, path: &str, body: &Value) -> Result<Response, Error> {
        match self.open_once(operation, path, body).await {
            // The token has expired, or there is none yet.
            Err(Error::Refused { code: 16 | 3, .. }) if self.user.is_some() => {
                self.authenticate().await?;
                self.open_once(operation, path, body).await
            }
            outcome => outcome,
        }
    }

    async fn open_once(&self, operation: &'static str, path: &str, body: &Value) -> Result<Response, Error> {
        let first = self.preferred.load(Ordering::Relaxed);
        let mut failures = Vec::new();
        for offset in 0..self.endpoints.len() {
            let index = (first + offset) % self.endpoints.len();
            let endpoint = &self.endpoints[index];
            match self.send(&format!("{endpoint}{path}"), body).await {
                Ok(response) if response.status().is_success() => {
                    self.preferred.store(index, Ordering::Relaxed);
                    return Ok(response);
                }
                Ok(response) => {
                    let status = response.status();
                    match (refusal(response).await, status) {
                        (Some(failure), _) if !is_of_member(status) => {
                            return Err(Error::Refused { operation, code: failure.code, message: failure.message });
                        }
                        (Some(failure), _) => failures.push(format!("{endpoint}: {}", failure.message)),
                        (None, status) => failures.push(format!("{endpoint}: status {status}")),
                    }
                }
                Err(reason) => failures.push(format!("{endpoint}: {reason}")),
            }
        }
        Err(Error::Unavailable { operation, reason: failures.join("; ") })
    }

    async fn send(&self, url: &str, body: &Value) -> Result<Response, String> {
        let mut request = self.http.post(url).body(body.to_string());
        let token = self.token.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(token) = token {
            request = request.header("Authorization", token);
        }
        let late = |_| format!("no response within {REQUEST_TIMEOUT:?}");
        let response = tokio::time::timeout(REQUEST_TIMEOUT, request.send()).await.map_err(late)?;
        response.map_err(|error| chain(&error))
    }

    async fn authenticate(&self) -> Result<(), Error> {
        const OPERATION: &str = "authenticate";
        let Some((name, file)) = &self.user else { return Ok(()) };
        let password = String::from_utf8_lossy(&read(file)?).trim_end_matches('\n').to_owned();
        *self.token.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let body = json!({"name": name, "password": password});
        let response = self.open_once(OPERATION, "/v3/auth/authenticate", &body).await?;
        let text = read_body(response).await.map_err(|reason| Error::Unavailable { operation: OPERATION, reason })?;
        let response: AuthenticateResponse = serde_json::from_slice(&text)
            .map_err(|error| Error::Unavailable { operation: OPERATION, reason: format!("its response: {error}") })?;
        *self.token.lock().unwrap_or_else(PoisonError::into_inner) = Some(response.token);
        Ok(())
    }
}

/// Reports whether another member may respond differently.
fn is_of_member(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT
            | StatusCode::BAD_GATEWAY
            | StatusCode::REQUEST_TIMEOUT
    )
}

async fn refusal(response: Response) -> Option<Failure> {
    let text = tokio::time::timeout(REQUEST_TIMEOUT, read_body(response)).await.ok()?.ok()?;
    serde_json::from_slice(&text).ok()
}

async fn read_body(mut response: Response) -> Result<Vec<u8>, String> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| chain(&error))? {
        body.extend_from_slice(&chunk);
        if body.len() > RESPONSE_MAX {
            return Err("its response is longer than 32 MiB".into());
        }
    }
    Ok(body)
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    let mut content = Vec::new();
    let read = File::open(path).and_then(|file| file.take(FILE_MAX).read_to_end(&mut content));
    read.map_err(|error| Error::File { path: path.to_owned(), reason: error.to_string() })?;
    Ok(content)
}

/// Returns an error with its causes.
pub(crate) fn chain(error: &reqwest::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}
