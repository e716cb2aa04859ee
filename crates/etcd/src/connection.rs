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
/// Codes of requests without a valid token (`google.rpc.Code`).
const UNAUTHENTICATED: i64 = 16;
const INVALID_ARGUMENT: i64 = 3;
/// Beginning of the messages of the cluster's errors, unlike those of the gateway and of other services.
const OF_CLUSTER: &str = "etcdserver: ";
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
        match self.call_once(operation, path, body).await {
            Err(error) if self.must_authenticate(&error) => {
                self.authenticate().await?;
                self.call_once(operation, path, body).await
            }
            outcome => outcome,
        }
    }

    /// Sends a request; returns the response of the first member that responds, of which the body is a stream.
    pub(crate) async fn open(&self, operation: &'static str, path: &str, body: &Value) -> Result<Response, Error> {
        match self.open_once(operation, path, body).await {
            Err(error) if self.must_authenticate(&error) => {
                self.authenticate().await?;
                self.open_once(operation, path, body).await
            }
            outcome => outcome,
        }
    }

    /// Reports whether a request was refused because a token is missing, or has expired.
    fn must_authenticate(&self, error: &Error) -> bool {
        self.user.is_some() && matches!(error, Error::Refused { code: UNAUTHENTICATED | INVALID_ARGUMENT, .. })
    }

    async fn call_once<T: DeserializeOwned>(
        &self,
        operation: &'static str,
        path: &str,
        body: &Value,
    ) -> Result<T, Error> {
        self.any(operation, path, body, async |response| {
            let late = |_| format!("no response within {REQUEST_TIMEOUT:?}");
            let text = tokio::time::timeout(REQUEST_TIMEOUT, read_body(response)).await.map_err(late)??;
            serde_json::from_slice(&text).map_err(|error| format!("its response: {error}"))
        })
        .await
    }

    async fn open_once(&self, operation: &'static str, path: &str, body: &Value) -> Result<Response, Error> {
        self.any(operation, path, body, async |response| Ok(response)).await
    }

    /// Sends a request to the members in turn, beginning with the one that responded last, until one responds as etcd does.
    async fn any<T>(
        &self,
        operation: &'static str,
        path: &str,
        body: &Value,
        read: impl AsyncFn(Response) -> Result<T, String>,
    ) -> Result<T, Error> {
        let first = self.preferred.load(Ordering::Relaxed);
        let mut failures = Vec::new();
        for offset in 0..self.endpoints.len() {
            let index = (first + offset) % self.endpoints.len();
            let endpoint = &self.endpoints[index];
            let outcome = match self.send(&format!("{endpoint}{path}"), body).await {
                Ok(response) if response.status().is_success() => read(response).await,
                Ok(response) => {
                    let status = response.status();
                    match refusal(response).await {
                        // Every member would refuse it.
                        Some(Failure { code, message }) if message.starts_with(OF_CLUSTER) && !is_of_member(status) => {
                            return Err(Error::Refused { operation, code, message });
                        }
                        Some(failure) if !failure.message.is_empty() => Err(failure.message),
                        _ => Err(format!("status {status}")),
                    }
                }
                Err(reason) => Err(reason),
            };
            match outcome {
                Ok(value) => {
                    self.preferred.store(index, Ordering::Relaxed);
                    return Ok(value);
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
        let response: AuthenticateResponse = self.call_once(OPERATION, "/v3/auth/authenticate", &body).await?;
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
