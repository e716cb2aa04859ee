//! The streams of `v4.channel.k8s.io` and older, over SPDY: each tells by a header what it is.

use std::future::Future;

use tokio::time::timeout;

use super::{Channels, Plan, carry, together};
use crate::{
    Error, Session, Streams,
    channel::{Inbox, Outlet},
    handshake::Version,
    http::Client,
    spdy::{self, Acceptor, Limits, Stream},
};

/// Five that are known; more are taken to be refused by name.
const STREAMS_MAX: usize = 8;

/// Serves it from upgrade to end.
pub(super) async fn serve<S: Future<Output = Result<Session, Error>> + Send>(
    client: Client,
    version: Version,
    plan: Plan<S>,
) {
    let (reader, writer, standing) = client.split();
    let limits = Limits { streams: STREAMS_MAX, stall: None };
    let (mut acceptor, run) = spdy::connect(reader, writer, limits, standing);
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
                    () = carry(plan, version, channels) => {}
                    () = refuse => {}
                }
            }
            Ok(None) => {}
            Err(_) => tracing::info!("a client did not open the streams of its session in time"),
        }
        connection.say_goodbye().await;
    };
    together(run, connection.link(), idle, session).await;
}

/// The halves of streams that have no use; they stay so that the client sees no end of them.
type Unused = (Vec<Inbox>, Vec<Outlet>);

/// Waits for the streams that the client was promised. `None`: the client left.
async fn open(acceptor: &mut Acceptor, streams: Streams, version: Version) -> Option<(Channels, Unused)> {
    let mut channels = Channels { stdin: None, stdout: None, stderr: None, error: None, resize: None };
    let mut unused: Unused = (Vec::new(), Vec::new());
    let wanted = [true, streams.stdin, streams.stdout, streams.stderr, streams.tty && version >= Version::V3];
    let wanted = wanted.into_iter().filter(|wanted| *wanted).count();
    let mut opened = 0;
    while opened < wanted {
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
            tracing::debug!(kind, "refused a stream of a command");
            acceptor.refuse(offer).await;
            continue;
        }
        let Stream { inbox, outlet } = acceptor.accept(offer).await.ok()?;
        let outlet = Outlet::Spdy(outlet);
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
