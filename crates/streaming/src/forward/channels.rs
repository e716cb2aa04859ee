//! `v4.channel.k8s.io`: two channels for each port, data and errors, and one connection each, from the start.

use std::sync::Arc;

use futures_util::future::join_all;
use tokio::time::timeout;

use super::relay::{Pair, relay};
use crate::{
    PortForward, Runtime,
    channel::Outlet,
    command::LINGER,
    http::Client,
    server::Shared,
    websocket::{self, Codec},
};

/// Serves it from upgrade to end.
pub(super) async fn serve<R: Runtime>(shared: &Arc<Shared<R>>, client: Client, codec: Codec, wanted: &PortForward) {
    let (reader, writer, standing) = client.split();
    // A request has at most so many ports that their channels have numbers.
    let numbers: Vec<u8> = (0..wanted.ports.len()).map(|n| n as u8 * 2).collect();
    let (connection, inboxes, run) = websocket::connect(reader, writer, codec, &numbers, standing);
    let forwards = wanted.ports.iter().zip(numbers.iter().copied()).zip(inboxes).map(|((port, number), inbox)| {
        let outlet = |number| Outlet::WebSocket(connection.outlet(number));
        let mut pair = Pair { inbox, data: outlet(number), error: outlet(number + 1) };
        async move {
            // Which port a channel is for.
            for outlet in [&mut pair.data, &mut pair.error] {
                if outlet.send(&port.to_le_bytes()).await.is_err() {
                    return;
                }
            }
            relay(&shared.runtime, &wanted.sandbox, *port, pair).await;
        }
    });
    let idle = shared.options.idle_timeout;
    let idle = async { if idle.is_zero() { std::future::pending().await } else { connection.link().idle(idle).await } };
    tokio::pin!(run);
    tokio::select! {
        () = &mut run => return,
        _ = join_all(forwards) => {}
        () = idle => tracing::info!("a port-forward was idle for too long"),
    }
    let _ = timeout(LINGER, async { tokio::join!(connection.say_goodbye(), run) }).await;
    connection.link().over().cancel();
}
