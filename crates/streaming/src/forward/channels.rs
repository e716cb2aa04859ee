//! `v4.channel.k8s.io`: two channels per port, for data and errors, and one connection per port, made at the start.

use std::sync::Arc;

use futures_util::future::join_all;
use tokio::time::timeout;

use super::relay::{Pair, relay};
use crate::{
    PortForward, Runtime,
    channel::{Inbox, Outlet},
    client::Client,
    remote_command::LINGER,
    state::Shared,
    websocket::{self, Codec},
};

/// Serves a connection from the upgrade until it ends.
pub(super) async fn serve<R: Runtime>(shared: &Arc<Shared<R>>, client: Client, codec: Codec, request: &PortForward) {
    let (reader, writer, lifetime) = client.split();
    // The number of ports is limited to `PORTS_MAX`, so the channel numbers fit into a byte.
    let numbers: Vec<u8> = (0..request.ports.len()).map(|n| n as u8 * 2).collect();
    let (connection, inboxes, run) = websocket::connect(reader, writer, codec, &numbers, lifetime);
    let forwards = request.ports.iter().zip(numbers.iter().copied()).zip(inboxes).map(|((port, number), inbox)| {
        let outlet = |number| Outlet::WebSocket(connection.outlet(number));
        let mut pair = Pair { inbox: Inbox::WebSocket(inbox), data: outlet(number), error: outlet(number + 1) };
        async move {
            // The first message of each channel contains its port number.
            for outlet in [&mut pair.data, &mut pair.error] {
                if outlet.send(&port.to_le_bytes()).await.is_err() {
                    return;
                }
            }
            relay(&shared.runtime, &request.sandbox, *port, pair).await;
        }
    });
    let idle = shared.options.idle_timeout;
    let idle = async { if idle.is_zero() { std::future::pending().await } else { connection.link().idle(idle).await } };
    tokio::pin!(run);
    tokio::select! {
        () = &mut run => return,
        _ = join_all(forwards) => {}
        () = idle => tracing::info!("ended an idle port-forward session"),
    }
    let _ = timeout(LINGER, async { tokio::join!(connection.close(), run) }).await;
    connection.link().closed().cancel();
}
