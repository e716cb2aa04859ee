//! `portforward.k8s.io`: for each connection a data stream and an error stream of one request id.

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
    channel::Outlet,
    link::Standing,
    server::Shared,
    spdy::{self, Acceptor, Headers, Limits, Offer, Stream},
};

/// Two for each connection of the client.
const STREAMS_MAX: usize = 1024;
/// How long a client may take to close its connection after the session's end.
const LINGER: Duration = Duration::from_secs(5);

/// Streams whose partner is not there yet.
struct Unpaired {
    by_request: HashMap<String, (Kind, Instant, Stream)>,
    /// Until when they may wait, the soonest first; may name pairs that were made.
    deadlines: VecDeque<(Instant, String)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Data,
    Error,
}

/// What a stream is, by its headers.
fn purpose(headers: &Headers, id: u32) -> Option<(Kind, u16, String)> {
    let port = headers.get("port")?.parse().ok().filter(|port| *port > 0)?;
    let kind = match headers.get("streamtype")? {
        "data" => Kind::Data,
        "error" => Kind::Error,
        _ => return None,
    };
    let request = match (headers.get("requestid"), kind) {
        (Some(request), _) if !request.is_empty() => request.to_owned(),
        // Clients that name none open the error stream first and the data stream right after it.
        (_, Kind::Error) => format!("stream {id}"),
        (_, Kind::Data) => format!("stream {}", id.wrapping_sub(2)),
    };
    Some((kind, port, request))
}

/// Serves it to its end.
pub(super) async fn serve<R: Runtime>(
    shared: &Arc<Shared<R>>,
    (reader, writer, standing): (impl AsyncRead + Send + Unpin, impl AsyncWrite + Send + Unpin + 'static, Standing),
    sandbox: &str,
) {
    let limits = Limits { streams: STREAMS_MAX, stall: Some(shared.options.stall_timeout) };
    let (mut acceptor, run) = spdy::connect(reader, writer, limits, standing);
    let connection = acceptor.connection();
    let idle = shared.options.idle_timeout;
    let idle = async { if idle.is_zero() { std::future::pending().await } else { connection.link().idle(idle).await } };
    tokio::pin!(run);
    tokio::select! {
        () = &mut run => return,
        () = pairs(shared, &mut acceptor, sandbox) => {}
        () = idle => {
            tracing::info!("a port-forward was idle for too long");
            // A client that does not even read hears nothing.
            let _ = timeout(LINGER, async { tokio::join!(connection.say_goodbye(), run) }).await;
        }
    }
    connection.link().over().cancel();
}

/// Makes pairs of streams, and connections of pairs, until the client leaves.
async fn pairs<R: Runtime>(shared: &Arc<Shared<R>>, acceptor: &mut Acceptor, sandbox: &str) {
    let mut unpaired = Unpaired { by_request: HashMap::new(), deadlines: VecDeque::new() };
    // Dropping it ends them all.
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
    /// Takes a stream; with its partner it is a pair.
    async fn add(&mut self, acceptor: &mut Acceptor, offer: Offer, until: Instant) -> Option<(u16, Pair)> {
        let Some((kind, port, request)) = purpose(offer.headers(), offer.id()) else {
            tracing::debug!(headers = ?offer.headers(), "refused a stream of a port-forward");
            acceptor.refuse(offer).await;
            return None;
        };
        if self.by_request.get(&request).is_some_and(|(there, ..)| *there == kind) {
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
        self.forget_paired();
        let Stream { inbox, outlet } = data;
        Some((port, Pair { inbox, data: Outlet::Spdy(outlet), error: Outlet::Spdy(error.outlet) }))
    }

    fn forget_paired(&mut self) {
        let waits =
            |until: &Instant, request: &String| self.by_request.get(request).is_some_and(|(_, at, _)| at == until);
        while self.deadlines.front().is_some_and(|(until, request)| !waits(until, request)) {
            self.deadlines.pop_front();
        }
    }

    /// Ends the stream that waited longest.
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
        self.forget_paired();
    }
}
