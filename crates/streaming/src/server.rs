//! The listener, and what is known of all sessions.

use std::{
    future::Future,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use tokio::{net::TcpListener, time::sleep};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{Counts, Request, Runtime, TooMany, counts::Counters, http, tokens::Tokens, undecided::Undecided};

/// How long to wait when no connection can be taken for lack of descriptors.
const BREATH: Duration = Duration::from_millis(100);

/// How it is served.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Where it listens; port 0: any free one.
    pub address: SocketAddr,
    /// A session over which nothing goes for so long is ended; zero: never.
    pub idle_timeout: Duration,
    /// How long a client may take to name its session after it connected.
    pub head_timeout: Duration,
    /// How long a client may take to open the streams of its session.
    pub stream_timeout: Duration,
    /// How long a forwarded connection whose pod does not read may hold up others of its session before it is reset.
    pub stall_timeout: Duration,
}

impl Default for Options {
    /// On loopback, four hours, five seconds for the request, 30 seconds each for the rest.
    fn default() -> Self {
        Self {
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            idle_timeout: Duration::from_secs(4 * 60 * 60),
            head_timeout: Duration::from_secs(5),
            stream_timeout: Duration::from_secs(30),
            stall_timeout: Duration::from_secs(30),
        }
    }
}

/// It cannot listen.
#[derive(Debug, thiserror::Error)]
#[error("listen on {address} for exec, attach and port-forward: {source}")]
pub struct BindError {
    address: SocketAddr,
    source: io::Error,
}

/// Hands out URLs, and serves who connects to them.
pub struct Server<R> {
    listener: TcpListener,
    /// What URLs begin with.
    base: String,
    shared: Arc<Shared<R>>,
}

/// What sessions have of the server.
pub(crate) struct Shared<R> {
    pub(crate) runtime: R,
    pub(crate) options: Options,
    pub(crate) tokens: Tokens,
    pub(crate) counters: Arc<Counters>,
    /// The server ends.
    pub(crate) over: CancellationToken,
    pub(crate) sessions: TaskTracker,
}

impl<R: Runtime> Server<R> {
    /// Listens.
    ///
    /// # Errors
    /// When the address cannot be had.
    pub async fn bind(options: Options, runtime: R) -> Result<Self, BindError> {
        let failed = |source| BindError { address: options.address, source };
        let listener = TcpListener::bind(options.address).await.map_err(failed)?;
        let mut address = listener.local_addr().map_err(failed)?;
        if address.ip().is_unspecified() {
            // Whoever is told the URL is on this node.
            address.set_ip(match address.ip() {
                IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
                IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
            });
        }
        let shared = Shared {
            runtime,
            options,
            tokens: Tokens::default(),
            counters: Arc::default(),
            over: CancellationToken::new(),
            sessions: TaskTracker::new(),
        };
        Ok(Self { listener, base: format!("http://{address}"), shared: Arc::new(shared) })
    }

    /// Where a client can have this, once, within a minute.
    ///
    /// # Errors
    /// When too many wait already.
    pub fn url(&self, request: Request) -> Result<String, TooMany> {
        let path = request.path();
        Ok(format!("{}/{path}/{}", self.base, self.shared.tokens.put(request)?))
    }

    /// How many sessions there are and were.
    pub fn counts(&self) -> Counts {
        self.shared.counters.read()
    }

    /// Serves until `stop` resolves; then all sessions end.
    pub async fn serve(&self, stop: impl Future<Output = ()>) {
        tokio::select! {
            () = self.accept() => {}
            () = stop => {}
        }
        self.shared.over.cancel();
        self.shared.sessions.close();
        self.shared.sessions.wait().await;
    }

    async fn accept(&self) {
        let undecided = Arc::new(Undecided::default());
        loop {
            match self.listener.accept().await {
                Ok((stream, peer)) => {
                    let place = undecided.enter(peer.ip());
                    self.shared.sessions.spawn(http::serve(Arc::clone(&self.shared), stream, place));
                }
                Err(error) => {
                    tracing::warn!("take a streaming connection: {error}");
                    sleep(BREATH).await;
                }
            }
        }
    }
}

impl<R> Drop for Server<R> {
    fn drop(&mut self) {
        self.shared.over.cancel();
    }
}
