//! The HTTP/1.1 side: small on purpose, and bounded in connections, in time and in what it reads.

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

/// Connections at once; more wait.
const CONNECTIONS: usize = 16;
/// How long a client may take to say what it wants.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a connection lives: a scraper keeps one for many scrapes, and comes again.
const LIFE: Duration = Duration::from_secs(600);
/// Most bytes of a request.
const REQUEST_MAX: usize = 16 << 10;
/// After a failure to accept (no descriptors left), so long.
const PAUSE: Duration = Duration::from_millis(200);

/// The listener, which may be moved while the daemon runs.
pub(crate) struct Endpoint {
    read: Sources,
    listening: Mutex<Option<Listening>>,
}

struct Listening {
    /// As it was asked for: port 0 stays 0.
    asked: SocketAddr,
    bound: SocketAddr,
    task: JoinHandle<()>,
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Endpoint {
    /// Listens nowhere yet.
    pub(crate) fn new(read: Sources) -> Self {
        Self { read, listening: Mutex::new(None) }
    }

    /// From now on listens here, or nowhere; must be called within the runtime. The new address is taken before the old
    /// one is given up, so a failure changes nothing. Returns where it listens.
    pub(crate) fn listen(&self, address: Option<SocketAddr>) -> Result<Option<SocketAddr>, Failure> {
        let mut listening = self.listening.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(address) = address else {
            listening.take();
            return Ok(None);
        };
        if let Some(known) = listening.as_ref().filter(|known| known.asked == address) {
            return Ok(Some(known.bound));
        }
        let wrong = |error: std::io::Error| Failure::daemon(format!("metrics.address: listen on {address}: {error}"));
        let listener = std::net::TcpListener::bind(address).map_err(wrong)?;
        let bound = listener.local_addr().map_err(wrong)?;
        let listener = listener.set_nonblocking(true).and_then(|()| TcpListener::from_std(listener)).map_err(wrong)?;
        tracing::info!("metrics are served at http://{bound}/metrics");
        let task = tokio::spawn(accept(listener, self.read.clone()));
        listening.replace(Listening { asked: address, bound, task });
        Ok(Some(bound))
    }
}

async fn accept(listener: TcpListener, read: Sources) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        // It is never closed.
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((connection, _)) => {
                let read = read.clone();
                tokio::spawn(async move {
                    // A client that is slow, broken or gone is its own trouble.
                    let _ = timeout(LIFE, converse(connection, read)).await;
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

async fn converse(connection: TcpStream, read: Sources) -> hyper::Result<()> {
    let service = service_fn(move |request| {
        let read = read.clone();
        async move { Ok::<_, Infallible>(answer(&read, &request).await) }
    });
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .max_buf_size(REQUEST_MAX)
        .serve_connection(TokioIo::new(connection), service)
        .await
}

async fn answer(read: &Sources, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    if ![Method::GET, Method::HEAD].contains(request.method()) {
        let mut refusal = text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are answered\n");
        refusal.headers_mut().insert(ALLOW, hyper::header::HeaderValue::from_static("GET, HEAD"));
        return refusal;
    }
    match request.uri().path() {
        "/metrics" => metrics(read, accepted(request)).await,
        "/healthz" => health(&read.engine).await,
        _ => text(StatusCode::NOT_FOUND, "there is /metrics, and /healthz\n"),
    }
}

fn accepted(request: &Request<Incoming>) -> Format {
    request.headers().get(ACCEPT).and_then(|value| value.to_str().ok()).map_or(Format::Prometheus, Format::accepted)
}

async fn metrics(read: &Sources, format: Format) -> Response<Full<Bytes>> {
    let read = read.clone();
    match tokio::task::spawn_blocking(move || scrape(&read, format)).await {
        Ok(page) => with_type(StatusCode::OK, page, format.content_type()),
        Err(panic) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("a bug: {panic}\n")),
    }
}

/// Ready as the CRI's `Status` tells it.
async fn health(engine: &pod::Engine) -> Response<Full<Bytes>> {
    let status = engine.status().await;
    let told = |part: &str, condition: &pod::Condition| match condition.ready {
        true => format!("{part}: ready\n"),
        false => format!("{part}: {}: {}\n", condition.reason, condition.message),
    };
    let code = match status.runtime.ready && status.network.ready {
        true => StatusCode::OK,
        false => StatusCode::SERVICE_UNAVAILABLE,
    };
    text(code, told("runtime", &status.runtime) + &told("network", &status.network))
}

fn text(code: StatusCode, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    with_type(code, body, "text/plain; charset=utf-8")
}

fn with_type(code: StatusCode, body: impl Into<Bytes>, kind: &'static str) -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = code;
    answer.headers_mut().insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static(kind));
    answer
}
