//! The streams of `v4.channel.k8s.io` and older, over SPDY: a header names the type of each stream.

use std::future::Future;

use tokio::time::timeout;

use super::{Channels, Plan, run_session, transfer};
use crate::{
    Error, Session, Streams,
    channel::{Inbox, Outlet},
    client::Client,
    handshake::Version,
    spdy::{self, Acceptor, Limits, Stream},
};

/// Maximum number of streams. Five types exist; more streams are received so that they can be refused individually.
const STREAMS_MAX: usize = 8;

/// Serves a connection from the upgrade until it ends.
pub(super) async fn serve<S: Future<Output = Result<Session, Error>> + Send>(
    client: Client,
    version: Version,
    plan: Plan<S>,
) {
    let (reader, writer, lifetime) = client.split();
    let limits = Limits { streams: STREAMS_MAX, stall: None };
    let (mut acceptor, run) = spdy::connect(reader, writer, limits, lifetime);
    let connection = acceptor.connection();
    let idle = plan.options.idle_timeout;
    let session = async {
        let opened = timeout(plan.options.stream_timeout, open(&mut acceptor, plan.streams, version)).await;
        match opened {
            Ok(Some((channels, _unused))) => {
                let refuse = async {
                    while let Some(offer) = acceptor.next().await {
                        acceptor.refuse(offer).await;
                    }
                    std::future::pending().await
                };
                tokio::select! {
                    () = transfer(plan, version, channels) => {}
                    () = refuse => {}
                }
            }
            Ok(None) => {}
            Err(_) => tracing::info!("a client did not open all streams of its session in time"),
        }
        connection.close().await;
    };
    run_session(run, connection.link(), idle, session).await;
}

/// The unused directions of streams; they are kept so that the client does not see them end.
type Unused = (Vec<Inbox>, Vec<Outlet>);

/// Waits until the client has opened all streams of the session. `None`: the client disconnected.
async fn open(acceptor: &mut Acceptor, streams: Streams, version: Version) -> Option<(Channels, Unused)> {
    let mut channels = Channels { stdin: None, stdout: None, stderr: None, error: None, resize: None };
    let mut unused: Unused = (Vec::new(), Vec::new());
    let expected = [true, streams.stdin, streams.stdout, streams.stderr, streams.tty && version >= Version::V3];
    let expected = expected.into_iter().filter(|expected| *expected).count();
    let mut opened = 0;
    while opened < expected {
        let offer = acceptor.next().await?;
        let kind = offer.headers().get("streamtype").unwrap_or_default().to_owned();
        let known = match kind.as_str() {
            "error" => channels.error.is_none(),
            "stdin" => channels.stdin.is_none(),
            "stdout" => channels.stdout.is_none(),
            "stderr" => channels.stderr.is_none(),
            "resize" => channels.resize.is_none(),
            _ => false,
        };
        if !known {
            tracing::debug!(kind, "refused an unexpected stream of an exec or attach session");
            acceptor.refuse(offer).await;
            continue;
        }
        let Stream { inbox, outlet } = acceptor.accept(offer).await.ok()?;
        let (inbox, outlet) = (Inbox::Spdy(inbox), Outlet::Spdy(outlet));
        opened += 1;
        match kind.as_str() {
            "stdin" | "resize" => {
                unused.1.push(outlet);
                if kind == "stdin" { channels.stdin = Some(inbox) } else { channels.resize = Some(inbox) }
            }
            _ => {
                unused.0.push(inbox);
                match kind.as_str() {
                    "error" => channels.error = Some(outlet),
                    "stdout" => channels.stdout = Some(outlet),
                    _ => channels.stderr = Some(outlet),
                }
            }
        }
    }
    Some((channels, unused))
}
