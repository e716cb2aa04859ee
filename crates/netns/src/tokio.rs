//! Sockets of namespaces for the tokio runtime (feature `tokio`).
//!
//! A socket is opened on a helper thread, which takes about 12 µs and never waits for the network; everything else
//! happens on the runtime, in tasks that may run on any of its threads.

use std::net::SocketAddr;

use rustix::{
    io::Errno,
    net::{SocketFlags, SocketType, connect},
};
use tokio::{
    io::unix::AsyncFd,
    net::{TcpListener, TcpStream, UdpSocket},
};

use crate::{Error, Namespace, Watch, WatchEvent};

impl Namespace {
    /// Binds a listener of TCP in this namespace; see [`Namespace::tcp_listener`]. Must be called in a runtime.
    ///
    /// # Errors
    /// `EADDRINUSE`, `EADDRNOTAVAIL`.
    pub fn tokio_tcp_listener(&self, address: SocketAddr) -> Result<TcpListener, Error> {
        let listener = self.tcp_listener(address)?;
        let registered = listener.set_nonblocking(true).and_then(|()| TcpListener::from_std(listener));
        registered.map_err(|e| Error::kernel("listen on", address.to_string(), e))
    }

    /// Connects to an address that is reachable from this namespace.
    ///
    /// # Errors
    /// `ECONNREFUSED`, `EHOSTUNREACH`, `ETIMEDOUT`.
    pub async fn tokio_tcp_stream(&self, address: SocketAddr) -> Result<TcpStream, Error> {
        let fail = |e| Error::kernel("connect to", address.to_string(), e);
        let socket = self.internet_socket(address, SocketType::STREAM, SocketFlags::NONBLOCK)?;
        match connect(&socket, &address) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(errno) => return Err(fail(errno.into())),
        }
        let stream = TcpStream::from_std(socket.into()).map_err(fail)?;
        stream.writable().await.map_err(fail)?;
        match stream.take_error().map_err(fail)? {
            Some(error) => Err(fail(error)),
            None => Ok(stream),
        }
    }

    /// Binds a socket of UDP in this namespace. Must be called in a runtime.
    ///
    /// # Errors
    /// `EADDRINUSE`, `EADDRNOTAVAIL`.
    pub fn tokio_udp_socket(&self, address: SocketAddr) -> Result<UdpSocket, Error> {
        let socket = self.udp_socket(address)?;
        let registered = socket.set_nonblocking(true).and_then(|()| UdpSocket::from_std(socket));
        registered.map_err(|e| Error::kernel("bind", address.to_string(), e))
    }
}

/// A [`Watch`] that a task waits for.
#[derive(Debug)]
pub struct AsyncWatch {
    watch: AsyncFd<Watch>,
}

impl AsyncWatch {
    /// Registers a watch with the runtime.
    ///
    /// # Errors
    /// When the runtime refuses it.
    #[expect(deprecated, reason = "the descriptors of a Watch are its own and stay open as long as it exists")]
    pub fn new(watch: Watch) -> Result<Self, Error> {
        let registered = AsyncFd::with_interest(watch, tokio::io::Interest::READABLE);
        Ok(Self { watch: registered.map_err(|e| Error::kernel("watch", "pins", e))? })
    }

    /// Waits for the next change. Nothing is lost if the future is dropped.
    ///
    /// # Errors
    /// See [`Watch::try_next`].
    pub async fn next(&mut self) -> Result<WatchEvent, Error> {
        loop {
            if let Some(event) = self.watch.get_mut().try_next()? {
                return Ok(event);
            }
            let recheck = self.watch.get_ref().recheck_within();
            let readable = self.watch.readable_mut();
            let ready = match recheck {
                Some(within) => match tokio::time::timeout(within, readable).await {
                    Ok(ready) => ready,
                    Err(_) => continue,
                },
                None => readable.await,
            };
            let mut guard = ready.map_err(|e| Error::kernel("watch", "pins", e))?;
            // The runtime does not clear the state if an event arrived after `guard` was made.
            match guard.get_inner_mut().try_next()? {
                Some(event) => return Ok(event),
                None => guard.clear_ready(),
            }
        }
    }
}
