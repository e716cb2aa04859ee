//! The resolver of a pod.

use std::{
    io,
    net::{IpAddr, SocketAddr, TcpListener, UdpSocket},
    sync::Arc,
};

use tokio::task::AbortHandle;

use crate::{
    Names, PORT,
    state::{Shared, State},
    tcp, udp,
};

/// A running resolver; it ends when this is dropped.
#[derive(Debug)]
pub struct Resolver {
    tasks: [AbortHandle; 2],
}

impl Resolver {
    /// Serves a pod on sockets of its namespace. Without `servers`, those of the node are queried. Must be called in a
    /// runtime.
    ///
    /// # Errors
    /// When the runtime refuses a socket.
    pub fn start(
        (udp, tcp): (UdpSocket, TcpListener),
        names: Arc<dyn Names>,
        servers: &[IpAddr],
        shared: &Shared,
    ) -> io::Result<Self> {
        udp.set_nonblocking(true)?;
        tcp.set_nonblocking(true)?;
        let (udp, tcp) = (tokio::net::UdpSocket::from_std(udp)?, tokio::net::TcpListener::from_std(tcp)?);
        let servers = servers.iter().map(|ip| SocketAddr::new(*ip, PORT)).collect();
        let state = Arc::new(State::new(names, servers, shared.clone()));
        let udp = tokio::spawn(udp::serve(Arc::new(udp), Arc::clone(&state))).abort_handle();
        let tcp = tokio::spawn(tcp::serve(tcp, state)).abort_handle();
        Ok(Self { tasks: [udp, tcp] })
    }
}

impl Drop for Resolver {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}
