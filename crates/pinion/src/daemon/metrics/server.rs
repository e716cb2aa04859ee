//! The server for metrics.

use std::{
    net::SocketAddr,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Bytes, Incoming},
    header::{ACCEPT, ALLOW},
};
use telemetry::Format;
use tokio::{net::TcpListener, task::JoinHandle};

use super::{Sources, scrape::scrape};
use crate::{
    Failure,
    daemon::http::{serve, text, with_type},
};

/// How long a scraper may take to send the header of a request. It keeps a connection open for many scrapes, and
/// reconnects.
const HEADER_TIME: Duration = Duration::from_secs(10);

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
    let respond = move |request: Request<Incoming>| {
        let sources = sources.clone();
        async move { respond(&sources, &request).await }
    };
    serve(listener, "metrics", HEADER_TIME, respond).await;
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
