//! The options of the server.

use std::{
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

/// Options of the server.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Address to listen on; port 0 chooses a free one.
    pub address: SocketAddr,
    /// A session without any transfer for this time is ended; zero disables this.
    pub idle_timeout: Duration,
    /// How long a client may take to send its request after it connected.
    pub head_timeout: Duration,
    /// How long a client may take to open the streams of its session.
    pub stream_timeout: Duration,
    /// How long a forwarded connection whose pod does not read may block others of its session before it is reset.
    pub stall_timeout: Duration,
}

impl Default for Options {
    /// Loopback; an idle timeout of four hours, five seconds for the request, 30 seconds for the other timeouts.
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
