//! The HTTP/1.1 server. Connections, their lifetime and the size of requests are bounded.

use std::{convert::Infallible, sync::Arc, time::Duration};

use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Bytes, Incoming},
    header::{CONTENT_TYPE, HeaderValue},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use pod::Engine;
use serde::Serialize;
use tokio::{
    net::{UnixListener, UnixStream},
    sync::Semaphore,
    time::timeout,
};

use super::{INFO, find};

/// Maximum number of concurrent connections; further ones wait.
const CONNECTIONS: usize = 16;
/// How long a client may take to send the header of a request, the time between two requests included.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum lifetime of a connection; a client reconnects.
const CONNECTION_LIFETIME: Duration = Duration::from_secs(600);
/// Maximum size of a request in bytes.
const REQUEST_MAX: usize = 16 << 10;
/// Pause after a failure to accept a connection, for example because there are no descriptors left.
const PAUSE: Duration = Duration::from_millis(200);

pub(super) async fn accept(listener: UnixListener, engine: Engine) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        // The semaphore is never closed.
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((connection, _)) => {
                let engine = engine.clone();
                tokio::spawn(async move {
                    // Errors of a client that is slow, broken or gone are not worth a report.
                    let _ = timeout(CONNECTION_LIFETIME, serve_connection(connection, engine)).await;
                    drop(slot);
                });
            }
            Err(error) => {
                tracing::warn!("accept a connection of cAdvisor: {error}");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

async fn serve_connection(connection: UnixStream, engine: Engine) -> hyper::Result<()> {
    let service = service_fn(move |request| {
        let response = respond(&engine, &request);
        async move { Ok::<_, Infallible>(response) }
    });
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(REQUEST_MAX)
        .serve_connection(TokioIo::new(connection), service)
        .await
}

fn respond(engine: &Engine, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    if request.method() != Method::GET {
        return with_type(StatusCode::METHOD_NOT_ALLOWED, "only GET is supported\n", "text/plain");
    }
    let path = request.uri().path();
    match path.strip_prefix("/containers/") {
        Some(id) => match find(engine, id) {
            Some(container) => json(&container),
            None => with_type(StatusCode::NOT_FOUND, "no container or pod has this id\n", "text/plain"),
        },
        None if path == "/info" => json(&INFO),
        None => with_type(StatusCode::NOT_FOUND, "not found; use /info or /containers/ID\n", "text/plain"),
    }
}

fn json(body: &impl Serialize) -> Response<Full<Bytes>> {
    match serde_json::to_vec(body) {
        Ok(text) => with_type(StatusCode::OK, text, "application/json"),
        Err(error) => with_type(StatusCode::INTERNAL_SERVER_ERROR, error.to_string(), "text/plain"),
    }
}

fn with_type(code: StatusCode, body: impl Into<Bytes>, content_type: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
