//! `portforward.k8s.io`: each connection has a data stream and an error stream with the same request id.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    task::JoinSet,
    time::{Instant, sleep_until, timeout},
};

use super::relay::{Pair, relay};
use crate::{
    Runtime,
    channel::{Inbox, Outlet},
    link::Lifetime,
    spdy::{self, Acceptor, Headers, Limits, Offer, Stream},
    state::Shared,
};

/// Maximum number of streams; each connection has two.
const STREAMS_MAX: usize = 1024;
/// How long a client may take to close its connection after the session has ended.
const LINGER: Duration = Duration::from_secs(5);

/// Streams whose partner has not been opened yet.
struct Unpaired {
    by_request: HashMap<String, (Kind, Instant, Stream)>,
    /// Deadlines of the streams, the earliest first. May contain requests that have been paired.
    deadlines: VecDeque<(Instant, String)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Data,
    Error,
}

/// Returns kind, port and request id of a stream, according to its headers.
fn purpose(headers: &Headers, id: u32) -> Option<(Kind, u16, String)> {
    let port = headers.get("port")?.parse().ok().filter(|port| *port > 0)?;
    let kind = match headers.get("streamtype")? {
        "data" => Kind::Data,
        "error" => Kind::Error,
        _ => return None,
    };
    let request = match (headers.get("requestid"), kind) {
        (Some(request), _) if !request.is_empty() => request.to_owned(),
        // Clients that send no request id open the error stream first and the data stream right after it.
        (_, Kind::Error) => format!("stream {id}"),
        (_, Kind::Data) => format!("stream {}", id.wrapping_sub(2)),
    };
    Some((kind, port, request))
}

/// Serves a connection until it ends.
pub(super) async fn serve<R: Runtime>(
    shared: &Arc<Shared<R>>,
    (reader, writer, lifetime): (impl AsyncRead + Send + Unpin, impl AsyncWrite + Send + Unpin + 'static, Lifetime),
    sandbox: &str,
) {
    let limits = Limits { streams: STREAMS_MAX, stall: Some(shared.options.stall_timeout) };
    let (mut acceptor, run) = spdy::connect(reader, writer, limits, lifetime);
    let connection = acceptor.connection();
    let idle = shared.options.idle_timeout;
    let idle = async { if idle.is_zero() { std::future::pending().await } else { connection.link().idle(idle).await } };
    tokio::pin!(run);
    tokio::select! {
        () = &mut run => return,
        () = pairs(shared, &mut acceptor, sandbox) => {}
        () = idle => {
            tracing::info!("ended an idle port-forward session");
            // A client that does not read does not receive this.
            let _ = timeout(LINGER, async { tokio::join!(connection.close(), run) }).await;
        }
    }
    connection.link().closed().cancel();
}

/// Pairs streams and starts a connection for each pair, until the client disconnects.
async fn pairs<R: Runtime>(shared: &Arc<Shared<R>>, acceptor: &mut Acceptor, sandbox: &str) {
    let mut unpaired = Unpaired { by_request: HashMap::new(), deadlines: VecDeque::new() };
    // Dropping the set ends all connections.
    let mut relays = JoinSet::new();
    loop {
        let deadline = unpaired.deadlines.front().map(|(deadline, _)| *deadline);
        tokio::select! {
            offer = acceptor.next() => {
                let Some(offer) = offer else { return };
                let until = Instant::now() + shared.options.stream_timeout;
                if let Some((port, pair)) = unpaired.add(acceptor, offer, until).await {
                    let (shared, sandbox) = (Arc::clone(shared), sandbox.to_owned());
                    relays.spawn(async move { relay(&shared.runtime, &sandbox, port, pair).await });
                }
            }
            Some(_) = relays.join_next() => {}
            () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => unpaired.expire().await,
        }
    }
}

impl Unpaired {
    /// Accepts a stream; returns the pair if its partner is open already.
    async fn add(&mut self, acceptor: &mut Acceptor, offer: Offer, until: Instant) -> Option<(u16, Pair)> {
        let Some((kind, port, request)) = purpose(offer.headers(), offer.id()) else {
            tracing::debug!(headers = ?offer.headers(), "refused an unexpected stream of a port-forward session");
            acceptor.refuse(offer).await;
            return None;
        };
        if self.by_request.get(&request).is_some_and(|(waiting, ..)| *waiting == kind) {
            acceptor.refuse(offer).await;
            return None;
        }
        let stream = acceptor.accept(offer).await.ok()?;
        let Some((_, _, partner)) = self.by_request.remove(&request) else {
            self.deadlines.push_back((until, request.clone()));
            self.by_request.insert(request, (kind, until, stream));
            return None;
        };
        let (data, error) = if kind == Kind::Data { (stream, partner) } else { (partner, stream) };
        self.remove_paired_deadlines();
        let Stream { inbox, outlet } = data;
        Some((port, Pair { inbox: Inbox::Spdy(inbox), data: Outlet::Spdy(outlet), error: Outlet::Spdy(error.outlet) }))
    }

    fn remove_paired_deadlines(&mut self) {
        let waits =
            |until: &Instant, request: &String| self.by_request.get(request).is_some_and(|(_, at, _)| at == until);
        while self.deadlines.front().is_some_and(|(until, request)| !waits(until, request)) {
            self.deadlines.pop_front();
        }
    }

    /// Ends the stream that has waited longest.
    async fn expire(&mut self) {
        let Some((_, request)) = self.deadlines.pop_front() else { return };
        if let Some((kind, _, mut stream)) = self.by_request.remove(&request) {
            if kind == Kind::Error {
                let text = format!("request {request}: its data stream was not opened in time");
                let _ = stream.outlet.send(text.as_bytes()).await;
                stream.outlet.finish().await;
            }
            stream.outlet.reset().await;
        }
        self.remove_paired_deadlines();
    }
}
