//! The HTTP/1.1 servers for metrics and for cAdvisor. Connections, their lifetime and the size of requests are bounded.

use std::{convert::Infallible, io, sync::Arc, time::Duration};

use http_body_util::Full;
use hyper::{
    Request, Response, StatusCode,
    body::{Bytes, Incoming},
    header::{CONTENT_TYPE, HeaderValue},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream, UnixListener, UnixStream},
    sync::Semaphore,
    time::timeout,
};

/// Maximum number of concurrent connections; further ones wait.
const CONNECTIONS: usize = 16;
/// Maximum lifetime of a connection; a client reconnects.
const CONNECTION_LIFETIME: Duration = Duration::from_secs(600);
/// Maximum size of a request in bytes.
const REQUEST_MAX: usize = 16 << 10;
/// Pause after a failure to accept a connection, for example because there are no descriptors left.
const PAUSE: Duration = Duration::from_millis(200);

/// A socket that connections are accepted from.
pub(super) trait Listener: Send + Sync + 'static {
    /// A connection.
    type Connection: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// Accepts the next connection.
    fn next(&self) -> impl Future<Output = io::Result<Self::Connection>> + Send;
}

impl Listener for TcpListener {
    type Connection = TcpStream;

    async fn next(&self) -> io::Result<TcpStream> {
        self.accept().await.map(|(connection, _)| connection)
    }
}

impl Listener for UnixListener {
    type Connection = UnixStream;

    async fn next(&self) -> io::Result<UnixStream> {
        self.accept().await.map(|(connection, _)| connection)
    }
}

/// Serves connections until the task is aborted. A client may take `header_time` to send the header of a request, the
/// time between two requests included. `purpose` is for log lines.
pub(super) async fn serve<R, F>(listener: impl Listener, purpose: &str, header_time: Duration, respond: R)
where
    R: Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<Full<Bytes>>> + Send + 'static,
{
    let slots = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        // The semaphore is never closed.
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
        match listener.next().await {
            Ok(connection) => {
                let respond = respond.clone();
                tokio::spawn(async move {
                    // Errors of a client that is slow, broken or gone are not worth a report.
                    let _ = timeout(CONNECTION_LIFETIME, serve_connection(connection, header_time, respond)).await;
                    drop(slot);
                });
            }
            Err(error) => {
                tracing::warn!("accept a connection for {purpose}: {error}");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

async fn serve_connection<R, F>(
    connection: impl AsyncRead + AsyncWrite + Unpin,
    header_time: Duration,
    respond: R,
) -> hyper::Result<()>
where
    R: Fn(Request<Incoming>) -> F,
    F: Future<Output = Response<Full<Bytes>>>,
{
    let service = service_fn(move |request| {
        let response = respond(request);
        async move { Ok::<_, Infallible>(response.await) }
    });
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(header_time)
        .max_buf_size(REQUEST_MAX)
        .serve_connection(TokioIo::new(connection), service)
        .await
}

/// Returns a response that is text.
pub(super) fn text(code: StatusCode, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    with_type(code, body, "text/plain; charset=utf-8")
}

/// Returns a response of another type.
pub(super) fn with_type(code: StatusCode, body: impl Into<Bytes>, content_type: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
