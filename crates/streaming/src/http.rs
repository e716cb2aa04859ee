//! HTTP/1.1 up to the upgrade, and what happens on the connection from then on.

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
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    net::{TcpStream, tcp::OwnedWriteHalf},
};
use tokio_util::sync::CancellationToken;

use crate::{
    Request, Runtime,
    command::{self, Kind, Plan},
    counts::Counted,
    forward,
    handshake::{self, Agreed, Refusal},
    link::Standing,
    server::Shared,
    undecided::Place,
};

/// Most bytes of what it says.
const HEADERS_MAX: usize = 16 * 1024;

type Response = hyper::Response<Full<Bytes>>;

/// Serves a connection until it is upgraded or ends.
pub(crate) async fn serve<R: Runtime>(shared: Arc<Shared<R>>, stream: TcpStream, place: Place) {
    // Keystrokes must not wait for more of them.
    let _ = stream.set_nodelay(true);
    let place = Arc::new(place);
    let service = {
        let (shared, place) = (Arc::clone(&shared), Arc::clone(&place));
        service_fn(move |request| {
            let (shared, place) = (Arc::clone(&shared), Arc::clone(&place));
            async move { Ok::<_, Infallible>(answer(&shared, &place, request)) }
        })
    };
    let connection = http1::Builder::new()
        // It has a deadline as a whole.
        .header_read_timeout(None)
        .max_buf_size(HEADERS_MAX)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    tokio::select! {
        // Whatever fails here fails for one client that has no session yet.
        ended = connection => if let Err(error) = ended { tracing::debug!("streaming connection: {error}") },
        () = place.lost(shared.options.head_timeout) => tracing::debug!("a client that named no session is dropped"),
        () = shared.over.cancelled() => {}
    }
}

fn answer<R: Runtime>(shared: &Arc<Shared<R>>, place: &Place, mut request: hyper::Request<Incoming>) -> Response {
    if !matches!(*request.method(), Method::GET | Method::POST) {
        let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "GET or POST");
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, POST"));
        return response;
    }
    let mut path = request.uri().path().split('/').skip(1);
    let wanted = match (path.next(), path.next(), path.next()) {
        (Some(kind), Some(token), None) => shared.tokens.take(kind, token),
        _ => None,
    };
    if wanted.is_some() {
        place.decided();
    }
    let Some(mut wanted) = wanted else {
        return plain(StatusCode::NOT_FOUND, "no session waits here: its URL is good once, for a minute");
    };
    if let (Request::PortForward(forward), Some(query)) = (&mut wanted, request.uri().query())
        && forward.ports.is_empty()
    {
        match forward::ports(query) {
            Ok(ports) => forward.ports = ports,
            Err(why) => return plain(StatusCode::BAD_REQUEST, &why),
        }
    }
    match handshake::agree(request.headers(), &wanted) {
        Ok((agreed, headers)) => {
            let upgrade = hyper::upgrade::on(&mut request);
            shared.sessions.spawn(session(Arc::clone(shared), wanted, agreed, upgrade));
            switching(headers)
        }
        Err(refusal) => refused(refusal),
    }
}

fn plain(status: StatusCode, text: &str) -> Response {
    let mut response = Response::new(Full::from(format!("{text}\n")));
    *response.status_mut() = status;
    // A refused client has nothing more to say, and keeps no connection.
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

fn refused(refusal: Refusal) -> Response {
    let mut response = plain(refusal.status, &refusal.why);
    for (name, value) in refusal.headers {
        response.headers_mut().append(name, HeaderValue::from_static(value));
    }
    response
}

fn switching(headers: HeaderMap) -> Response {
    let mut response = Response::default();
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    *response.headers_mut() = headers;
    response
}

/// A session from its upgrade to its end.
async fn session<R: Runtime>(shared: Arc<Shared<R>>, request: Request, agreed: Agreed, upgrade: OnUpgrade) {
    let upgraded = match upgrade.await {
        Ok(upgraded) => upgraded,
        Err(error) => return tracing::debug!("a client left before its session began: {error}"),
    };
    let Ok(Parts { io, read_buf, .. }) = upgraded.downcast::<TokioIo<TcpStream>>() else {
        return tracing::error!("a streaming connection is none that was accepted");
    };
    let _counted = Counted::new(&shared.counters, &request);
    let stream = io.into_inner();
    let over = shared.over.child_token();
    let Ok(socket) = stream.as_fd().try_clone_to_owned() else {
        return tracing::warn!("a session is not begun: no descriptors are left");
    };
    let client = Client { stream, begun: read_buf, standing: Standing { over, socket: Some(socket) } };
    let options = shared.options;
    match request {
        Request::Exec(exec) => {
            let start = shared.runtime.exec(&exec);
            let plan = Plan { kind: Kind::Exec, streams: exec.streams, options, start };
            command::serve(client, agreed, plan).await;
        }
        Request::Attach(attach) => {
            let start = shared.runtime.attach(&attach);
            let plan = Plan { kind: Kind::Attach, streams: attach.streams, options, start };
            command::serve(client, agreed, plan).await;
        }
        Request::PortForward(forward) => forward::serve(&shared, client, agreed, &forward).await,
    }
}

/// A client's connection after its upgrade.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    /// What it sent together with its request.
    pub(crate) begun: Bytes,
    pub(crate) standing: Standing,
}

impl Client {
    /// Its ends.
    pub(crate) fn split(self) -> (impl AsyncRead + Send + Unpin + 'static, OwnedWriteHalf, Standing) {
        let (read, write) = self.stream.into_split();
        (std::io::Cursor::new(self.begun).chain(read), write, self.standing)
    }

    /// What ends it.
    pub(crate) fn over(&self) -> CancellationToken {
        self.standing.over.clone()
    }
}
