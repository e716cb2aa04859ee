//! HTTP/1.1 up to the upgrade, which then starts the session.

use std::{convert::Infallible, sync::Arc};

use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    HeaderMap, Method, StatusCode,
    body::Incoming,
    header::{ALLOW, CONNECTION, HeaderValue},
    server::conn::http1,
    service::service_fn,
    upgrade::{OnUpgrade, Parts},
};
use hyper_util::rt::TokioIo;
use rustix::fd::AsFd;
use tokio::net::TcpStream;

use crate::{
    Request, Runtime,
    client::Client,
    counts::OpenSession,
    forward,
    handshake::{self, Protocol, Refusal},
    link::Lifetime,
    pending::PendingConnection,
    remote_command::{self, Kind, Plan},
    state::Shared,
};

/// Maximum size of a request's head in bytes.
const HEADERS_MAX: usize = 16 * 1024;

type Response = hyper::Response<Full<Bytes>>;

/// Serves a connection until it is upgraded or ends.
pub(crate) async fn serve<R: Runtime>(shared: Arc<Shared<R>>, stream: TcpStream, pending: PendingConnection) {
    // Keystrokes must be sent without delay.
    let _ = stream.set_nodelay(true);
    let pending = Arc::new(pending);
    let service = {
        let (shared, pending) = (Arc::clone(&shared), Arc::clone(&pending));
        service_fn(move |request| {
            let (shared, pending) = (Arc::clone(&shared), Arc::clone(&pending));
            async move { Ok::<_, Infallible>(respond(&shared, &pending, request)) }
        })
    };
    let connection = http1::Builder::new()
        // The timeout of `PendingConnection::expired` covers the whole request.
        .header_read_timeout(None)
        .max_buf_size(HEADERS_MAX)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    tokio::select! {
        // An error here concerns only a client without a session.
        outcome = connection => if let Err(error) = outcome { tracing::debug!("streaming connection: {error}") },
        () = pending.expired(shared.options.head_timeout) => tracing::debug!("closed a connection without a session"),
        () = shared.stopped.cancelled() => {}
    }
}

fn respond<R: Runtime>(
    shared: &Arc<Shared<R>>,
    pending: &PendingConnection,
    mut request: hyper::Request<Incoming>,
) -> Response {
    if !matches!(*request.method(), Method::GET | Method::POST) {
        let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "GET or POST");
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, POST"));
        return response;
    }
    let mut path = request.uri().path().split('/').skip(1);
    let session_request = match (path.next(), path.next(), path.next()) {
        (Some(kind), Some(token), None) => shared.tokens.take(kind, token),
        _ => None,
    };
    if session_request.is_some() {
        pending.remove();
    }
    let Some(mut session_request) = session_request else {
        return plain(StatusCode::NOT_FOUND, "no such session: a URL is valid once and for one minute");
    };
    if let (Request::PortForward(forward), Some(query)) = (&mut session_request, request.uri().query())
        && forward.ports.is_empty()
    {
        match forward::ports(query) {
            Ok(ports) => forward.ports = ports,
            Err(reason) => return plain(StatusCode::BAD_REQUEST, &reason),
        }
    }
    match handshake::negotiate(request.headers(), &session_request) {
        Ok((protocol, headers)) => {
            let upgrade = hyper::upgrade::on(&mut request);
            shared.sessions.spawn(session(Arc::clone(shared), session_request, protocol, upgrade));
            switch_protocols(headers)
        }
        Err(refusal) => refuse(refusal),
    }
}

fn plain(status: StatusCode, text: &str) -> Response {
    let mut response = Response::new(Full::from(format!("{text}\n")));
    *response.status_mut() = status;
    // The connection of a refused client is closed.
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

fn refuse(refusal: Refusal) -> Response {
    let mut response = plain(refusal.status, &refusal.reason);
    for (name, value) in refusal.headers {
        response.headers_mut().append(name, HeaderValue::from_static(value));
    }
    response
}

fn switch_protocols(headers: HeaderMap) -> Response {
    let mut response = Response::default();
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    *response.headers_mut() = headers;
    response
}

/// Runs a session from the upgrade until it ends.
async fn session<R: Runtime>(shared: Arc<Shared<R>>, request: Request, protocol: Protocol, upgrade: OnUpgrade) {
    let upgraded = match upgrade.await {
        Ok(upgraded) => upgraded,
        Err(error) => return tracing::debug!("a client disconnected before its session started: {error}"),
    };
    let Ok(Parts { io, read_buf, .. }) = upgraded.downcast::<TokioIo<TcpStream>>() else {
        return tracing::error!("an upgraded connection is not a TCP connection; this is a bug");
    };
    let _open = OpenSession::new(&shared.counters, &request);
    let stream = io.into_inner();
    let closed = shared.stopped.child_token();
    let Ok(socket) = stream.as_fd().try_clone_to_owned() else {
        return tracing::warn!("cannot start a streaming session: out of file descriptors");
    };
    let client = Client { stream, received: read_buf, lifetime: Lifetime { closed, socket: Some(socket) } };
    let options = shared.options;
    match request {
        Request::Exec(exec) => {
            let start = shared.runtime.exec(&exec);
            let plan = Plan { kind: Kind::Exec, streams: exec.streams, options, start };
            remote_command::serve(client, protocol, plan).await;
        }
        Request::Attach(attach) => {
            let start = shared.runtime.attach(&attach);
            let plan = Plan { kind: Kind::Attach, streams: attach.streams, options, start };
            remote_command::serve(client, protocol, plan).await;
        }
        Request::PortForward(forward) => forward::serve(&shared, client, protocol, &forward).await,
    }
}
