//! Exec and attach: a session's streams to a client's, whatever carries them.
//!
//! ```text
//! client                               session
//! stdin  ──Inbox──▶ input() ─────────▶ stdin, shut down at its end
//! resize ──Inbox──▶ resize::follow() ▶ control
//! stdout ◀─Outlet── output() ◀──────── stdout ┐ when these ended, and the command:
//! stderr ◀─Outlet── output() ◀──────── stderr ┘
//! error  ◀─Outlet── how it ended; then the connection is closed
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
    handshake::{Agreed, Version},
    http::Client,
    link::Link,
};
use status::Outcome;

/// Most bytes that are read at once of what goes to a client.
const CHUNK: usize = 64 * 1024;
/// How long a client may take to close its connection after the session's end.
pub(crate) const LINGER: Duration = Duration::from_secs(5);

/// What is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A command: its exit code is the session's.
    Exec,
    /// A container that goes on: the session's end is no failure, whatever the container's exit code.
    Attach,
}

impl Kind {
    fn failed(self, why: &Error) -> Outcome {
        Outcome::Failed(match self {
            Self::Exec => format!("error executing command in container: {why}"),
            Self::Attach => format!("error attaching to container: {why}"),
        })
    }
}

/// A client's streams.
pub(crate) struct Channels {
    pub(crate) stdin: Option<Inbox>,
    pub(crate) stdout: Option<Outlet>,
    pub(crate) stderr: Option<Outlet>,
    pub(crate) error: Option<Outlet>,
    pub(crate) resize: Option<Inbox>,
}

/// What is common to all sessions of commands.
pub(crate) struct Plan<S> {
    pub(crate) kind: Kind,
    pub(crate) streams: Streams,
    pub(crate) options: Options,
    /// Begins it, once the client's streams are there.
    pub(crate) start: S,
}

/// Serves it from upgrade to end.
pub(crate) async fn serve<S: Future<Output = Result<Session, Error>> + Send>(
    client: Client,
    agreed: Agreed,
    plan: Plan<S>,
) {
    match agreed {
        Agreed::Spdy(version) => spdy::serve(client, version, plan).await,
        Agreed::Channels(version, codec) => channels::serve(client, version, codec, plan).await,
        Agreed::Tunnel => tracing::error!("a command was agreed on in a tunnel"),
    }
}

/// Begins the session and carries its streams to its end, which is told then.
async fn carry<S: Future<Output = Result<Session, Error>>>(plan: Plan<S>, version: Version, mut client: Channels) {
    let error = client.error.take();
    let outcome = match plan.start.await {
        Ok(session) => exchange(plan.kind, session, client).await,
        Err(error) => plan.kind.failed(&error),
    };
    if let Some(mut error) = error {
        let text = outcome.text(version);
        // A client that left needs no answer.
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
        match control.ended().await {
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

/// Client to session, until either wants no more.
async fn input(client: Option<&mut Inbox>, session: Option<Writer>) {
    let Some(client) = client else { return };
    if let Some(mut session) = session {
        while let Some(piece) = client.next().await {
            if session.write_all(&piece).await.is_err() || session.flush().await.is_err() {
                break;
            }
        }
        // A program that closed its input knows of its end.
        let _ = session.shutdown().await;
    }
    client.discard().await;
}

/// Session to client, until either wants no more. A client that wants no more closes the session's side too.
async fn output(session: Option<Reader>, client: Option<Outlet>) {
    match (session, client) {
        (Some(session), Some(mut client)) => {
            copy(session, &mut client).await;
            client.finish().await;
        }
        (None, Some(mut client)) => client.finish().await,
        // A terminal that is not read would stop its program.
        (Some(mut session), None) => drop(tokio::io::copy(&mut session, &mut tokio::io::sink()).await),
        (None, None) => {}
    }
}

async fn copy(mut session: Reader, client: &mut Outlet) {
    let mut buffer = vec![0; CHUNK];
    loop {
        let read = tokio::select! {
            // A terminal whose other side closed gives EIO, which is its end of file.
            read = session.read(&mut buffer) => read.unwrap_or(0),
            () = client.refused() => return,
        };
        if read == 0 || client.send(&buffer[..read]).await.is_err() {
            return;
        }
    }
}

/// Runs a session on its connection until the first of: its end and then the connection's, the connection's, idleness.
async fn together(run: impl Future<Output = ()>, link: &Link, idle: Duration, session: impl Future<Output = ()>) {
    let idle = async { if idle.is_zero() { std::future::pending().await } else { link.idle(idle).await } };
    tokio::pin!(run);
    tokio::select! {
        () = &mut run => return,
        () = idle => tracing::info!("a streaming session was idle for too long"),
        () = session => drop(timeout(LINGER, run).await),
    }
    link.over().cancel();
}
