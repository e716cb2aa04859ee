//! Port-forward: independent connections of a client to ports of a pod, many in one session.

mod channels;
mod relay;
mod spdy;

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::{PortForward, Runtime, client::Client, handshake::Protocol, link::Lifetime, state::Shared, websocket};

/// Maximum number of ports in a request whose protocol requires them in advance.
pub const PORTS_MAX: usize = 64;

/// Serves a connection from the upgrade until it ends.
pub(crate) async fn serve<R: Runtime>(
    shared: &Arc<Shared<R>>,
    client: Client,
    protocol: Protocol,
    request: &PortForward,
) {
    match protocol {
        Protocol::Spdy(_) => {
            let (reader, writer, lifetime) = client.split();
            spdy::serve(shared, (reader, writer, lifetime), &request.sandbox).await;
        }
        Protocol::Channels(_, codec) => channels::serve(shared, client, codec, request).await,
        Protocol::Tunnel => {
            let inner = Lifetime { closed: client.closed().child_token(), socket: None };
            let (reader, writer, lifetime) = client.split();
            let closed = lifetime.closed.clone();
            let (messages, sender, outer) = websocket::tunnel(reader, writer, lifetime);
            tokio::select! {
                () = outer => {}
                () = spdy::serve(shared, (messages, sender, inner), &request.sandbox) => {}
            }
            CancellationToken::cancel(&closed);
        }
    }
}

/// Parses the ports of a query: `port=80,443&port=8080`.
pub(crate) fn ports(query: &str) -> Result<Vec<u16>, String> {
    let named = query.split('&').filter_map(|pair| pair.strip_prefix("port="));
    let ports: Result<Vec<u16>, _> = named
        .flat_map(|list| list.split(','))
        .map(|port| {
            port.parse()
                .ok()
                .filter(|port| *port > 0)
                .ok_or_else(|| format!("port={port}: not a valid port (1 to 65535)"))
        })
        .collect();
    match ports {
        Ok(ports) if ports.len() > PORTS_MAX => Err(format!("port: {} ports; at most {PORTS_MAX}", ports.len())),
        ports => ports,
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn ports_are_parsed_from_a_query() {
        assert_eq!(super::ports("port=80,443&x=y&port=8080"), Ok(vec![80, 443, 8080]));
        assert_eq!(super::ports("x=y"), Ok(Vec::new()));
        assert!(super::ports("port=0").is_err());
        assert!(super::ports("port=65536").is_err());
        assert!(super::ports("port=").is_err());
        assert!(super::ports(&vec!["port=1"; 65].join("&")).is_err());
    }
}
