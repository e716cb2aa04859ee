//! The streams of an exec'd process or a container over a bidirectional gRPC stream.
//!
//! ```text
//! client                         daemon
//!   │ start ───────────────────────▶ │
//!   │ ◀──────────────────── started  │
//!   │ stdin*, resize*, stdin_close ▶ │
//!   │ ◀──────────── stdout*, stderr* │
//!   │ ◀────────────────── exit_code  │  after both outputs are closed
//! ```

use cri_proto::pinion::{self as proto, SessionOutput, session_input::Input, session_output::Output};
use pod::{AttachedClient, Session, SessionControl, SessionExit, oci::TerminalSize};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    sync::mpsc,
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use super::Outgoing;
use crate::{Failure, handler::Outcome};

/// Maximum bytes of output per message.
const CHUNK: usize = 32 * 1024;

type Sender = mpsc::Sender<Result<SessionOutput, Status>>;

/// Receives the first message, which states what to run or to attach to.
pub(super) async fn first(input: &mut Streaming<proto::SessionInput>) -> Outcome<proto::SessionStart> {
    let message = input.message().await.map_err(|status| Failure::invalid("start", status.message()))?;
    match message.and_then(|m| m.input) {
        Some(Input::Start(start)) if !start.container.is_empty() => Ok(start),
        Some(Input::Start(_)) => Err(Failure::invalid("start.container", "must not be empty")),
        _ => Err(Failure::invalid("start", "must be the first message")),
    }
}

/// Converts a terminal size, limited to the maximum that a terminal can have.
pub(super) fn size(size: proto::TerminalSize) -> TerminalSize {
    let clamp = |n: u32| u16::try_from(n).unwrap_or(u16::MAX);
    TerminalSize { width: clamp(size.width), height: clamp(size.height) }
}

/// Transfers a session's streams until it ends or the client disconnects. Dropping the session then kills an exec'd
/// process, but not a container. `client` is dropped when the client has read all output or has disconnected.
pub(super) fn run(
    session: Session,
    input: Streaming<proto::SessionInput>,
    client: Option<AttachedClient>,
) -> Outgoing<SessionOutput> {
    let (sender, receiver) = mpsc::channel(16);
    tokio::spawn(async move {
        let _client = client;
        tokio::select! {
            () = sender.closed() => {}
            () = transfer(session, input, &sender) => {}
        }
    });
    Box::pin(ReceiverStream::new(receiver))
}

async fn transfer(session: Session, input: Streaming<proto::SessionInput>, sender: &Sender) {
    let Session { stdin, stdout, stderr, control } = session;
    if sender.send(Ok(message(Output::Started(true)))).await.is_err() {
        return;
    }
    // Stays alive until this function returns, because a client that only ends its input is still connected.
    let feed = feed(input, stdin, control.clone());
    let drain = async {
        tokio::join!(drain(stdout, sender, Output::Stdout), drain(stderr, sender, Output::Stderr));
        control.wait().await
    };
    tokio::pin!(feed, drain);
    let exit = tokio::select! {
        exit = &mut drain => exit,
        () = &mut feed => drain.await,
    };
    let last = match exit {
        Ok(SessionExit { code, oom_killed }) => {
            Ok(SessionOutput { out_of_memory: oom_killed, ..message(Output::ExitCode(code)) })
        }
        Err(error) => Err(Failure::from(error).into()),
    };
    // The client may have disconnected.
    let _ = sender.send(last).await;
}

/// Forwards input from the client to the program until the client's messages end. If the program exits first, only its
/// input is discarded.
async fn feed(
    mut input: Streaming<proto::SessionInput>,
    mut stdin: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    control: SessionControl,
) {
    while let Ok(Some(message)) = input.message().await {
        match message.input {
            Some(Input::Stdin(data)) => {
                if let Some(open) = &mut stdin
                    && (open.write_all(&data).await.is_err() || open.flush().await.is_err())
                {
                    stdin = None;
                }
            }
            Some(Input::StdinClose(_)) => close(stdin.take()).await,
            // Resizing fails if the terminal is closed; then the size does not matter.
            Some(Input::Resize(to)) => {
                let _ = control.resize(size(to)).await;
            }
            Some(Input::Start(_)) | None => {}
        }
    }
    close(stdin).await;
}

async fn close(stdin: Option<Box<dyn AsyncWrite + Send + Unpin>>) {
    if let Some(mut open) = stdin {
        // The program may have closed its end already.
        let _ = open.shutdown().await;
    }
}

/// Sends output of the program to the client until end of file.
async fn drain(stream: Option<Box<dyn AsyncRead + Send + Unpin>>, sender: &Sender, wrap: fn(Vec<u8>) -> Output) {
    let Some(mut stream) = stream else { return };
    let mut buffer = vec![0; CHUNK];
    // Reading a terminal whose other end is closed fails with EIO, which is its end of file.
    while let Ok(read @ 1..) = stream.read(&mut buffer).await {
        if sender.send(Ok(message(wrap(buffer[..read].to_vec())))).await.is_err() {
            return;
        }
    }
}

fn message(output: Output) -> SessionOutput {
    SessionOutput { output: Some(output), out_of_memory: false }
}
