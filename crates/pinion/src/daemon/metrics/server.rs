//! The HTTP/1.1 server for metrics. Connections, their lifetime and the size of requests are bounded.

use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Bytes, Incoming},
    header::{ACCEPT, ALLOW, CONTENT_TYPE},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use telemetry::Format;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::JoinHandle,
    time::timeout,
};

use super::{Sources, scrape::scrape};
use crate::Failure;

/// Maximum number of concurrent connections; further ones wait.
const CONNECTIONS: usize = 16;
/// How long a client may take to send the header of a request.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum lifetime of a connection. A scraper keeps one open for many scrapes, and reconnects.
const CONNECTION_LIFETIME: Duration = Duration::from_secs(600);
/// Maximum size of a request in bytes.
const REQUEST_MAX: usize = 16 << 10;
/// Pause after a failure to accept a connection, for example because there are no descriptors left.
const PAUSE: Duration = Duration::from_millis(200);

/// The metrics server, whose address may be changed while the daemon runs.
pub(crate) struct Endpoint {
    sources: Sources,
    listener: Mutex<Option<Listener>>,
}

struct Listener {
    /// The address as configured: port 0 remains 0.
    configured: SocketAddr,
    bound: SocketAddr,
    task: JoinHandle<()>,
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Endpoint {
    /// Creates the server, which does not listen yet.
    pub(crate) fn new(sources: Sources) -> Self {
        Self { sources, listener: Mutex::new(None) }
    }

    /// Listens on this address from now on, or on none. Must be called within the runtime. The new address is bound
    /// before the old one is released, so a failure changes nothing. Returns the bound address.
    pub(crate) fn listen(&self, address: Option<SocketAddr>) -> Result<Option<SocketAddr>, Failure> {
        let mut current = self.listener.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(address) = address else {
            current.take();
            return Ok(None);
        };
        if let Some(same) = current.as_ref().filter(|listener| listener.configured == address) {
            return Ok(Some(same.bound));
        }
        let failed = |error: std::io::Error| Failure::daemon(format!("metrics.address: listen on {address}: {error}"));
        let listener = std::net::TcpListener::bind(address).map_err(failed)?;
        let bound = listener.local_addr().map_err(failed)?;
        let listener = listener.set_nonblocking(true).and_then(|()| TcpListener::from_std(listener)).map_err(failed)?;
        tracing::info!("metrics are served at http://{bound}/metrics");
        let task = tokio::spawn(accept(listener, self.sources.clone()));
        current.replace(Listener { configured: address, bound, task });
        Ok(Some(bound))
    }
}

async fn accept(listener: TcpListener, sources: Sources) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        // The semaphore is never closed.
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((connection, _)) => {
                let sources = sources.clone();
                tokio::spawn(async move {
                    // Errors of a client that is slow, broken or gone are not worth a report.
                    let _ = timeout(CONNECTION_LIFETIME, serve_connection(connection, sources)).await;
                    drop(slot);
                });
            }
            Err(error) => {
                tracing::warn!("accept a connection for metrics: {error}");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

async fn serve_connection(connection: TcpStream, sources: Sources) -> hyper::Result<()> {
    let service = service_fn(move |request| {
        let sources = sources.clone();
        async move { Ok::<_, Infallible>(respond(&sources, &request).await) }
    });
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(REQUEST_MAX)
        .serve_connection(TokioIo::new(connection), service)
        .await
}

async fn respond(sources: &Sources, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    if ![Method::GET, Method::HEAD].contains(request.method()) {
        let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are supported\n");
        response.headers_mut().insert(ALLOW, hyper::header::HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    match request.uri().path() {
        "/metrics" => metrics(sources, accepted_format(request)).await,
        "/healthz" => health(&sources.engine).await,
        _ => text(StatusCode::NOT_FOUND, "not found; use /metrics or /healthz\n"),
    }
}

fn accepted_format(request: &Request<Incoming>) -> Format {
    request.headers().get(ACCEPT).and_then(|value| value.to_str().ok()).map_or(Format::Prometheus, Format::accepted)
}

async fn metrics(sources: &Sources, format: Format) -> Response<Full<Bytes>> {
    let sources = sources.clone();
    match offload::blocking(move || scrape(&sources, format)).await {
        Ok(page) => with_type(StatusCode::OK, page, format.content_type()),
        Err(panic) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("a bug: {panic}\n")),
    }
}

/// Responds with the conditions that the CRI's `Status` reports.
async fn health(engine: &pod::Engine) -> Response<Full<Bytes>> {
    let status = engine.status().await;
    let line = |part: &str, condition: &pod::Condition| match condition.ready {
        true => format!("{part}: ready\n"),
        false => format!("{part}: {}: {}\n", condition.reason, condition.message),
    };
    let code = match status.runtime.ready && status.network.ready {
        true => StatusCode::OK,
        false => StatusCode::SERVICE_UNAVAILABLE,
    };
    text(code, line("runtime", &status.runtime) + &line("network", &status.network))
}

fn text(code: StatusCode, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    with_type(code, body, "text/plain; charset=utf-8")
}

fn with_type(code: StatusCode, body: impl Into<Bytes>, content_type: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static(content_type));
    response
}
