//! A command's or a container's streams over one gRPC stream each way.
//!
//! ```text
//! client                         daemon
//!   │ start ───────────────────────▶ │
//!   │ ◀──────────────────── started  │
//!   │ stdin*, resize*, stdin_close ▶ │
//!   │ ◀──────────── stdout*, stderr* │
//!   │ ◀────────────────── exit_code  │  after both outputs ended
//! ```

use cri_proto::pinion::{self as proto, SessionOutput, session_input::Input, session_output::Output};
use pod::{Ended, Session, SessionControl};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    sync::mpsc,
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use super::Outgoing;
use crate::{Failure, answer::Outcome, attached::AttachedClient};

/// Most bytes of output in one message.
const CHUNK: usize = 32 * 1024;

type Sender = mpsc::Sender<Result<SessionOutput, Status>>;

/// The message that says what to run or attach to.
pub(super) async fn first(input: &mut Streaming<proto::SessionInput>) -> Outcome<proto::SessionStart> {
    let message = input.message().await.map_err(|status| Failure::invalid("start", status.message()))?;
    match message.and_then(|m| m.input) {
        Some(Input::Start(start)) if !start.container.is_empty() => Ok(start),
        Some(Input::Start(_)) => Err(Failure::invalid("start.container", "must not be empty")),
        _ => Err(Failure::invalid("start", "must be the first message")),
    }
}

/// Columns and rows; more than a terminal can have is the most it can have.
pub(super) fn size(size: proto::TerminalSize) -> (u16, u16) {
    let clamp = |n: u32| u16::try_from(n).unwrap_or(u16::MAX);
    (clamp(size.width), clamp(size.height))
}

/// Carries a session until it ended or the client left; dropping it then ends a command, not a container. `client` is
/// dropped when the client read all of it, or left.
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
            () = carry(session, input, &sender) => {}
        }
    });
    Box::pin(ReceiverStream::new(receiver))
}

async fn carry(session: Session, input: Streaming<proto::SessionInput>, sender: &Sender) {
    let Session { stdin, stdout, stderr, control } = session;
    if sender.send(Ok(message(Output::Started(true)))).await.is_err() {
        return;
    }
    // Lives as long as this function: a client that says no more is not one that left.
    let feed = feed(input, stdin, control.clone());
    let drain = async {
        tokio::join!(drain(stdout, sender, Output::Stdout), drain(stderr, sender, Output::Stderr));
        control.wait().await
    };
    tokio::pin!(feed, drain);
    let ended = tokio::select! {
        ended = &mut drain => ended,
        () = &mut feed => drain.await,
    };
    let last = match ended {
        Ok(Ended { code, oom_killed }) => {
            Ok(SessionOutput { out_of_memory: oom_killed, ..message(Output::ExitCode(code)) })
        }
        Err(error) => Err(Failure::from(error).into()),
    };
    // A client that is gone needs no answer.
    let _ = sender.send(last).await;
}

/// Client to program. Ends with the client's messages; an ended program only stops what goes to its input.
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
            // A terminal that is gone has no size.
            Some(Input::Resize(to)) => {
                let (columns, rows) = size(to);
                let _ = control.resize(columns, rows).await;
            }
            Some(Input::Start(_)) | None => {}
        }
    }
    close(stdin).await;
}

async fn close(stdin: Option<Box<dyn AsyncWrite + Send + Unpin>>) {
    if let Some(mut open) = stdin {
        // The program may have closed its side already.
        let _ = open.shutdown().await;
    }
}

/// Program to client, until end of file.
async fn drain(stream: Option<Box<dyn AsyncRead + Send + Unpin>>, sender: &Sender, wrap: fn(Vec<u8>) -> Output) {
    let Some(mut stream) = stream else { return };
    let mut buffer = vec![0; CHUNK];
    // A terminal whose other side closed gives EIO, which is its end of file.
    while let Ok(read @ 1..) = stream.read(&mut buffer).await {
        if sender.send(Ok(message(wrap(buffer[..read].to_vec())))).await.is_err() {
            return;
        }
    }
}

fn message(output: Output) -> SessionOutput {
    SessionOutput { output: Some(output), out_of_memory: false }
}
