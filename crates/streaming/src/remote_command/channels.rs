//! The numbered channels of `v5.channel.k8s.io` and older, over WebSocket.

use std::future::Future;

use super::{Channels, Plan, run_session, transfer};
use crate::{
    Error, Session,
    channel::{Inbox, Outlet},
    client::Client,
    handshake::Version,
    websocket::{self, Codec},
};

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const ERROR: u8 = 3;
const RESIZE: u8 = 4;

/// Serves a connection from the upgrade until it ends.
pub(super) async fn serve<S: Future<Output = Result<Session, Error>> + Send>(
    client: Client,
    version: Version,
    codec: Codec,
    plan: Plan<S>,
) {
    let (reader, writer, lifetime) = client.split();
    let streams = plan.streams;
    let numbers: &[u8] = if streams.stdin { &[RESIZE, STDIN] } else { &[RESIZE] };
    let (connection, mut inboxes, run) = websocket::connect(reader, writer, codec, numbers, lifetime);
    let outlet = |requested: bool, number| requested.then(|| Outlet::WebSocket(connection.outlet(number)));
    let mut channels = Channels {
        stdin: if streams.stdin { inboxes.pop().map(Inbox::WebSocket) } else { None },
        resize: inboxes.pop().map(Inbox::WebSocket),
        stdout: outlet(streams.stdout, STDOUT),
        stderr: outlet(streams.stderr, STDERR),
        error: outlet(true, ERROR),
    };
    let idle = plan.options.idle_timeout;
    let session = async {
        // Clients older than v5 treat an empty message as the start of the session.
        let first = [&mut channels.stdout, &mut channels.stderr, &mut channels.error].into_iter().flatten().next();
        if let Some(first) = first
            && first.send(&[]).await.is_err()
        {
            return;
        }
        transfer(plan, version, channels).await;
        connection.close().await;
    };
    run_session(run, connection.link(), idle, session).await;
}
