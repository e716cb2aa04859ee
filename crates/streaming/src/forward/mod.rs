//! Port-forward: connections of a client to ports of a pod, many in one session, each for itself.

mod channels;
mod relay;
mod spdy;

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::{PortForward, Runtime, handshake::Agreed, http::Client, link::Standing, server::Shared, websocket};

/// Most ports that a client may name whose protocol does not tell them later.
pub const PORTS_MAX: usize = 64;

/// Serves it from upgrade to end.
pub(crate) async fn serve<R: Runtime>(shared: &Arc<Shared<R>>, client: Client, agreed: Agreed, wanted: &PortForward) {
    match agreed {
        Agreed::Spdy(_) => {
            let (reader, writer, standing) = client.split();
            spdy::serve(shared, (reader, writer, standing), &wanted.sandbox).await;
        }
        Agreed::Channels(_, codec) => channels::serve(shared, client, codec, wanted).await,
        Agreed::Tunnel => {
            let inner = Standing { over: client.over().child_token(), socket: None };
            let (reader, writer, standing) = client.split();
            let over = standing.over.clone();
            let (messages, sender, outer) = websocket::tunnel(reader, writer, standing);
            tokio::select! {
                () = outer => {}
                () = spdy::serve(shared, (messages, sender, inner), &wanted.sandbox) => {}
            }
            CancellationToken::cancel(&over);
        }
    }
}

/// The ports of a query: `port=80,443&port=8080`.
pub(crate) fn ports(query: &str) -> Result<Vec<u16>, String> {
    let named = query.split('&').filter_map(|pair| pair.strip_prefix("port="));
    let ports: Result<Vec<u16>, _> = named
        .flat_map(|list| list.split(','))
        .map(|port| port.parse().ok().filter(|port| *port > 0).ok_or_else(|| format!("port={port}: is no port")))
        .collect();
    match ports {
        Ok(ports) if ports.len() > PORTS_MAX => Err(format!("port: {} of them, {PORTS_MAX} are taken", ports.len())),
        ports => ports,
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn ports_are_told_in_two_ways() {
        assert_eq!(super::ports("port=80,443&x=y&port=8080"), Ok(vec![80, 443, 8080]));
        assert_eq!(super::ports("x=y"), Ok(Vec::new()));
        assert!(super::ports("port=0").is_err());
        assert!(super::ports("port=65536").is_err());
        assert!(super::ports("port=").is_err());
        assert!(super::ports(&vec!["port=1"; 65].join("&")).is_err());
    }
}
