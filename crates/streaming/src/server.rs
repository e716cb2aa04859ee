//! The listener.

use std::{
    future::Future,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use tokio::{net::TcpListener, time::sleep};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    Counts, Options, Request, Runtime, TokenError, http, pending::PendingConnections, state::Shared, tokens::Tokens,
};

/// Pause before the next accept after it failed, mostly because no file descriptor was available.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// The listener cannot be created.
#[derive(Debug, thiserror::Error)]
#[error("listen on {address} for exec, attach and port-forward: {source}")]
pub struct BindError {
    address: SocketAddr,
    source: io::Error,
}

impl BindError {
    /// Returns the category, in terms of the standard library.
    pub fn kind(&self) -> io::ErrorKind {
        self.source.kind()
    }

    /// Returns the operation that failed.
    pub fn operation(&self) -> &'static str {
        "listen"
    }

    /// Returns the address to listen on.
    pub fn object(&self) -> SocketAddr {
        self.address
    }
}

/// Issues URLs, and serves the clients that connect to them.
pub struct Server<R> {
    listener: TcpListener,
    /// Start of all URLs.
    base: String,
    shared: Arc<Shared<R>>,
}

impl<R: Runtime> Server<R> {
    /// Binds the listener.
    ///
    /// # Errors
    /// When the address cannot be bound.
    pub async fn bind(options: Options, runtime: R) -> Result<Self, BindError> {
        let failed = |source| BindError { address: options.address, source };
        let listener = TcpListener::bind(options.address).await.map_err(failed)?;
        let mut address = listener.local_addr().map_err(failed)?;
        if address.ip().is_unspecified() {
            // The clients that use the URL are on this node.
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
            stopped: CancellationToken::new(),
            sessions: TaskTracker::new(),
        };
        Ok(Self { listener, base: format!("http://{address}"), shared: Arc::new(shared) })
    }

    /// Returns a URL for the session, which is valid once and for one minute.
    ///
    /// # Errors
    /// When too many URLs are unused, or no random bytes are available.
    pub fn url(&self, request: Request) -> Result<String, TokenError> {
        let path = request.path();
        Ok(format!("{}/{path}/{}", self.base, self.shared.tokens.put(request)?))
    }

    /// Returns the numbers of current and past sessions.
    pub fn counts(&self) -> Counts {
        self.shared.counters.read()
    }

    /// Serves until `stop` resolves; then all sessions are ended.
    pub async fn serve(&self, stop: impl Future<Output = ()>) {
        tokio::select! {
            () = self.accept() => {}
            () = stop => {}
        }
        self.shared.stopped.cancel();
        self.shared.sessions.close();
        self.shared.sessions.wait().await;
    }

    async fn accept(&self) {
        let pending = Arc::new(PendingConnections::default());
        loop {
            match self.listener.accept().await {
                Ok((stream, peer)) => {
                    let connection = pending.add(peer.ip());
                    self.shared.sessions.spawn(http::serve(Arc::clone(&self.shared), stream, connection));
                }
                Err(error) => {
                    tracing::warn!("accept a streaming connection: {error}");
                    sleep(ACCEPT_RETRY).await;
                }
            }
        }
    }
}

impl<R> Drop for Server<R> {
    fn drop(&mut self) {
        self.shared.stopped.cancel();
    }
}
