//! Port forwarding: connects to a port of a pod from within its network namespace, without a process in the pod; for one
//! with a virtual machine, within its guest.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use netns::Namespace;
use rustix::{
    fd::OwnedFd,
    net::{AddressFamily, SocketFlags, SocketType, socket_with},
};
use tokio::{
    net::{TcpSocket, TcpStream, UnixStream},
    time::timeout,
};

use crate::{
    Error, ErrorKind, VmProcess,
    container::vm::{find_process, forward},
    error::failed,
    operation::blocking,
    parts::Parts,
};

/// Connections to the loopback device succeed or fail at once, unless the listener's backlog is full.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Addresses in the order in which they are tried.
const ADDRESSES: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

/// A connection to a port of a pod.
#[derive(Debug)]
pub enum PodStream {
    /// To a port in a network namespace of the node.
    Node(TcpStream),
    /// To a port in the guest of a virtual machine.
    Guest(UnixStream),
}

/// Connects to a port on the loopback device of a pod, or of the node if the pod uses the node's network. Tries
/// 127.0.0.1, then ::1.
///
/// # Errors
/// `FailedPrecondition` if the pod is not ready, `Unavailable` if nothing listens on the port.
pub(crate) async fn port_forward(parts: &Arc<Parts>, sandbox: &str, port: u16) -> Result<PodStream, Error> {
    let sandbox = parts.registry.sandbox(sandbox)?;
    let with_context = |e: Error| e.during(format_args!("connect to port {port} of pod {}", sandbox.id()));
    if !sandbox.is_ready() {
        return Err(with_context(Error::state("it is not ready")));
    }
    if find_process(parts, sandbox.id(), VmProcess::Hypervisor).is_some() {
        return forward(parts, &sandbox, port).await.map(PodStream::Guest).map_err(with_context);
    }
    let netns = sandbox.record().netns.clone();
    let mut causes = Vec::new();
    for address in ADDRESSES {
        let target = SocketAddr::new(address, port);
        let socket = socket_in(netns.clone(), target).await.map_err(with_context)?;
        match timeout(CONNECT_TIMEOUT, socket.connect(target)).await {
            Ok(Ok(stream)) => return Ok(PodStream::Node(stream)),
            Ok(Err(error)) => causes.push(format!("{target}: {error}")),
            Err(_) => causes.push(format!("{target}: no answer in {} s", CONNECT_TIMEOUT.as_secs())),
        }
    }
    Err(with_context(Error::new(ErrorKind::Unavailable, causes.join("; "))))
}

/// Creates a socket in a network namespace. Only the creation must happen there: the socket stays in that namespace.
async fn socket_in(netns: Option<PathBuf>, target: SocketAddr) -> Result<TcpSocket, Error> {
    let family = if target.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let make = move || -> io::Result<OwnedFd> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        Ok(socket_with(family, SocketType::STREAM, flags, None)?)
    };
    let socket = match netns {
        None => make(),
        Some(path) => {
            blocking(move || {
                let namespace = Namespace::open(&path).map_err(failed("open its network namespace"))?;
                namespace.enter(make).map_err(failed("enter its network namespace"))
            })
            .await?
        }
    };
    let socket = socket.map_err(failed("create a socket"))?;
    Ok(TcpSocket::from_std_stream(socket.into()))
}
