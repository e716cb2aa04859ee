//! A connection to a port of a pod, made in its network namespace; no process of the pod is needed.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use netns::Namespace;
use rustix::{
    fd::OwnedFd,
    net::{AddressFamily, SocketFlags, SocketType, socket_with},
};
use tokio::{
    net::{TcpSocket, TcpStream},
    time::timeout,
};

use crate::{Engine, Error, ErrorKind, engine::blocking, error::failed};

/// Loopback answers at once, one way or the other, unless its queue is full.
const CONNECT: Duration = Duration::from_secs(10);
/// In the order in which they are tried.
const ADDRESSES: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

impl Engine {
    /// Connects to a port of the pod's loopback (of the node's, if the pod has its network): 127.0.0.1, then ::1.
    ///
    /// # Errors
    /// `FailedPrecondition` when the pod is not ready, `Unavailable` when nobody listens there.
    pub async fn port_forward(&self, sandbox: &str, port: u16) -> Result<TcpStream, Error> {
        let sandbox = self.0.sandbox(sandbox)?;
        let told = |e: Error| e.during(format_args!("connect to port {port} of pod {}", sandbox.id()));
        if !sandbox.is_ready() {
            return Err(told(Error::state("it is not ready")));
        }
        let netns = sandbox.record().netns.clone();
        let mut why = Vec::new();
        for address in ADDRESSES {
            let to = SocketAddr::new(address, port);
            let socket = socket_in(netns.clone(), to).await.map_err(told)?;
            match timeout(CONNECT, socket.connect(to)).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(error)) => why.push(format!("{to}: {error}")),
                Err(_) => why.push(format!("{to}: no answer in {} s", CONNECT.as_secs())),
            }
        }
        Err(told(Error::new(ErrorKind::Unavailable, why.join("; "))))
    }
}

/// Only the making of a socket needs the namespace: it stays in it.
async fn socket_in(netns: Option<PathBuf>, to: SocketAddr) -> Result<TcpSocket, Error> {
    let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let make = move || -> io::Result<OwnedFd> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        Ok(socket_with(family, SocketType::STREAM, flags, None)?)
    };
    let made = match netns {
        None => make(),
        Some(path) => {
            blocking(move || {
                let namespace = Namespace::open(&path).map_err(failed("find its network"))?;
                namespace.enter(make).map_err(failed("enter its network"))
            })
            .await?
        }
    };
    let socket = made.map_err(failed("make a socket"))?;
    Ok(TcpSocket::from_std_stream(socket.into()))
}
