//! Queries other servers, from the network of the node.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpStream, UdpSocket},
    time::timeout,
};

use crate::wire::{Code, Query, is_failure};

/// How long one server may take.
const SERVER_TIMEOUT: Duration = Duration::from_secs(2);
/// Number of servers that are tried.
const SERVERS_MAX: usize = 3;
/// Longest response over UDP that is accepted.
const RESPONSE_MAX: usize = 4096;

/// How a query arrived, and is forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Udp,
    Tcp,
}

/// Returns the response of the first server that has one; an error if none has. Takes at most 6 s.
pub(crate) async fn forward(query: &Query, message: &[u8], servers: &[SocketAddr], transport: Transport) -> Vec<u8> {
    let mut failure = None;
    for server in servers.iter().take(SERVERS_MAX) {
        let exchanged = timeout(SERVER_TIMEOUT, exchange(query, message, *server, transport)).await;
        let Ok(Ok(mut response)) = exchanged else { continue };
        response[..2].copy_from_slice(&query.id());
        if !is_failure(&response) {
            return response;
        }
        failure = Some(response);
    }
    failure.unwrap_or_else(|| query.empty(Code::ServerFailure))
}

async fn exchange(query: &Query, message: &[u8], server: SocketAddr, transport: Transport) -> io::Result<Vec<u8>> {
    // An id that the pod does not know, and a port that the kernel chooses, make responses hard to forge.
    let mut id = [0; 2];
    rustix::rand::getrandom(&mut id[..], rustix::rand::GetRandomFlags::empty())?;
    let mut message = message.to_vec();
    message[..2].copy_from_slice(&id);
    let response = match transport {
        Transport::Udp => over_udp(query, id, &message, server).await?,
        Transport::Tcp => over_tcp(&message, server).await?,
    };
    match query.is_answered_by(id, &response) {
        true => Ok(response),
        false => Err(io::ErrorKind::InvalidData.into()),
    }
}

async fn over_udp(query: &Query, id: [u8; 2], message: &[u8], server: SocketAddr) -> io::Result<Vec<u8>> {
    let any = if server.is_ipv4() { IpAddr::V4(Ipv4Addr::UNSPECIFIED) } else { IpAddr::V6(Ipv6Addr::UNSPECIFIED) };
    let socket = UdpSocket::bind(SocketAddr::new(any, 0)).await?;
    socket.connect(server).await?;
    socket.send(message).await?;
    let mut response = vec![0; RESPONSE_MAX];
    loop {
        let length = socket.recv(&mut response).await?;
        // Anything else may be forged: the response may still arrive.
        if query.is_answered_by(id, &response[..length]) {
            response.truncate(length);
            return Ok(response);
        }
    }
}

async fn over_tcp(message: &[u8], server: SocketAddr) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(server).await?;
    stream.write_all(&framed(message)?).await?;
    let mut response = vec![0; usize::from(stream.read_u16().await?)];
    stream.read_exact(&mut response).await?;
    Ok(response)
}

/// Returns a message with its length before it (RFC 1035, section 4.2.2).
pub(crate) fn framed(message: &[u8]) -> io::Result<Vec<u8>> {
    let length = u16::try_from(message.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
    Ok([&length.to_be_bytes(), message].concat())
}
