//! Exec and attach: connects a session's streams to those of a client, independent of the protocol.
//!
//! ```text
//! client                               session
//! stdin  ──Inbox──▶ input() ─────────▶ stdin, shut down at end of file
//! resize ──Inbox──▶ resize::follow() ▶ control
//! stdout ◀─Outlet── output() ◀──────── stdout ┐ after these have ended and the process has exited:
//! stderr ◀─Outlet── output() ◀──────── stderr ┘
//! error  ◀─Outlet── status; then the connection is closed
//! ```

mod channels;
mod resize;
mod spdy;
mod status;

use std::{future::Future, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};

use crate::{
    Error, Options, Reader, Session, Streams, Writer,
    channel::{Inbox, Outlet},
    client::Client,
    handshake::{Protocol, Version},
    link::Link,
};
use status::Outcome;

/// Size of the buffer for output in bytes.
const CHUNK: usize = 64 * 1024;
/// How long a client may take to close its connection after the session has ended.
pub(crate) const LINGER: Duration = Duration::from_secs(5);

/// The kind of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Exec: the status contains the exit code of the process.
    Exec,
    /// Attach: the end of the session is a success, whatever the exit code of the container, which keeps running.
    Attach,
}

impl Kind {
    fn failed(self, error: &Error) -> Outcome {
        Outcome::Failed(match self {
            Self::Exec => format!("error executing command in container: {error}"),
            Self::Attach => format!("error attaching to container: {error}"),
        })
    }
}

/// The streams of a client.
pub(crate) struct Channels {
    pub(crate) stdin: Option<Inbox>,
    pub(crate) stdout: Option<Outlet>,
    pub(crate) stderr: Option<Outlet>,
    pub(crate) error: Option<Outlet>,
    pub(crate) resize: Option<Inbox>,
}

/// Parameters of an exec or attach session.
pub(crate) struct Plan<S> {
    pub(crate) kind: Kind,
    pub(crate) streams: Streams,
    pub(crate) options: Options,
    /// Starts the session; polled when the client has opened its streams.
    pub(crate) start: S,
}

/// Serves a connection from the upgrade until it ends.
pub(crate) async fn serve<S: Future<Output = Result<Session, Error>> + Send>(
    client: Client,
    protocol: Protocol,
    plan: Plan<S>,
) {
    match protocol {
        Protocol::Spdy(version) => spdy::serve(client, version, plan).await,
        Protocol::Channels(version, codec) => channels::serve(client, version, codec, plan).await,
        Protocol::Tunnel => tracing::error!("exec and attach cannot use a tunnel; this is a bug"),
    }
}

/// Starts the session, transfers its streams until it ends, and sends its status.
async fn transfer<S: Future<Output = Result<Session, Error>>>(plan: Plan<S>, version: Version, mut client: Channels) {
    let error = client.error.take();
    let outcome = match plan.start.await {
        Ok(session) => exchange(plan.kind, session, client).await,
        Err(error) => plan.kind.failed(&error),
    };
    if let Some(mut error) = error {
        let text = outcome.text(version);
        // The client may have disconnected.
        if text.is_empty() || error.send(text.as_bytes()).await.is_ok() {
            error.finish().await;
        }
    }
}

async fn exchange(kind: Kind, session: Session, client: Channels) -> Outcome {
    let Session { stdin, stdout, stderr, control, ends_with_input } = session;
    let (mut client_stdin, mut resizes) = (client.stdin, client.resize);
    let incoming = async {
        let sizes = async {
            if let Some(resizes) = &mut resizes {
                resize::follow(resizes, &*control).await;
            }
        };
        let input = async {
            input(client_stdin.as_mut(), stdin).await;
            if !ends_with_input || client_stdin.is_none() {
                std::future::pending::<()>().await;
            }
        };
        tokio::pin!(sizes, input);
        tokio::select! {
            () = &mut input => {}
            () = &mut sizes => input.await,
        }
    };
    let outgoing = async {
        let (has_stdout, has_stderr) = (stdout.is_some(), stderr.is_some());
        tokio::join!(output(stdout, client.stdout), output(stderr, client.stderr));
        if kind == Kind::Attach && (has_stdout || has_stderr) {
            return Outcome::Exited(0);
        }
        match control.wait().await {
            Ok(code) if kind == Kind::Exec => Outcome::Exited(code),
            Ok(_) => Outcome::Exited(0),
            Err(error) => kind.failed(&error),
        }
    };
    tokio::select! {
        outcome = outgoing => outcome,
        () = incoming => Outcome::Exited(0),
    }
}

/// Transfers input from client to session until one of them ends.
async fn input(client: Option<&mut Inbox>, session: Option<Writer>) {
    let Some(client) = client else { return };
    if let Some(mut session) = session {
        while let Some(piece) = client.next().await {
            if session.write_all(&piece).await.is_err() || session.flush().await.is_err() {
                break;
            }
        }
        // This fails if the program has closed its input already.
        let _ = session.shutdown().await;
    }
    client.discard().await;
}

/// Transfers output from session to client until one of them ends. If the client ends it, the session's stream is
/// closed.
async fn output(session: Option<Reader>, client: Option<Outlet>) {
    match (session, client) {
        (Some(session), Some(mut client)) => {
            copy(session, &mut client).await;
            client.finish().await;
        }
        (None, Some(mut client)) => client.finish().await,
        // Output of a terminal must be drained, otherwise its program blocks.
        (Some(mut session), None) => drop(tokio::io::copy(&mut session, &mut tokio::io::sink()).await),
        (None, None) => {}
    }
}

async fn copy(mut session: Reader, client: &mut Outlet) {
    let mut buffer = vec![0; CHUNK];
    loop {
        let read = tokio::select! {
            // Reading a terminal whose other end is closed fails with EIO, which is its end of file.
            read = session.read(&mut buffer) => read.unwrap_or(0),
            () = client.closed() => return,
        };
        if read == 0 || client.send(&buffer[..read]).await.is_err() {
            return;
        }
    }
}

/// Runs a session until it or its connection ends, or until the idle timeout. After the end of the session, waits up to
/// [`LINGER`] for the end of the connection.
async fn run_session(run: impl Future<Output = ()>, link: &Link, idle: Duration, session: impl Future<Output = ()>) {
    let idle = async { if idle.is_zero() { std::future::pending().await } else { link.idle(idle).await } };
    tokio::pin!(run);
    tokio::select! {
        () = &mut run => return,
        () = idle => tracing::info!("ended an idle streaming session"),
        () = session => drop(timeout(LINGER, run).await),
    }
    link.closed().cancel();
}
