//! This program's streams, connected to a command's or a container's by one gRPC stream each way.

use std::io;

use cri_proto::pinion::{
    SessionInput, SessionOutput, SessionStart, TerminalSize, session_input::Input, session_output::Output,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    signal::unix::{SignalKind, signal},
    sync::mpsc,
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use crate::{Client, Failure, terminal};

/// Most bytes of input in one message.
const CHUNK: usize = 16 * 1024;
/// ctrl-p ctrl-q leaves a terminal session without ending it.
const DETACH: [u8; 2] = [16, 17];

/// How a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The program ended.
    Exited(Exit),
    /// The user left; the program goes on.
    Detached,
}

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exit {
    /// 128 + signal where a signal ended it.
    pub(crate) code: i32,
    /// The OOM killer ended it, or a process of its container.
    pub(crate) out_of_memory: bool,
}

/// What to connect to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A new command.
    Exec,
    /// The container itself.
    Attach,
}

/// A session that the daemon has accepted; [`Session::carry`] runs it.
pub(crate) struct Session {
    output: Streaming<SessionOutput>,
    input: mpsc::Sender<SessionInput>,
    tty: bool,
    stdin: bool,
    _raw: Option<terminal::Raw>,
}

impl Session {
    /// Asks the daemon for the session. With a terminal, the local one becomes raw here.
    pub(crate) async fn open(client: &mut Client, kind: Kind, mut start: SessionStart) -> Result<Self, Failure> {
        let (tty, stdin) = (start.tty, start.stdin);
        if tty {
            start.size = terminal::size().map(size);
        }
        let (input, messages) = mpsc::channel(16);
        // Cannot fail: the receiver is right here.
        let _ = input.send(SessionInput { input: Some(Input::Start(start)) }).await;
        let messages = ReceiverStream::new(messages);
        let mut output = match kind {
            Kind::Exec => client.native.exec(messages).await?,
            Kind::Attach => client.native.attach(messages).await?,
        }
        .into_inner();
        match output.message().await?.and_then(|m| m.output) {
            Some(Output::Started(_)) => {}
            _ => return Err(Failure::new("the daemon broke the session's protocol")),
        }
        let raw = (tty && stdin && terminal::is_input()).then(terminal::Raw::enter).transpose()?;
        Ok(Self { output, input, tty, stdin, _raw: raw })
    }

    /// Carries bytes, sizes of the terminal and keys until the program ended or the user left.
    pub(crate) async fn carry(mut self) -> Result<End, Failure> {
        let typed = feed(self.input.clone(), self.stdin, self.tty);
        let resized = follow_size(self.input.clone(), self.tty);
        tokio::pin!(typed, resized);
        let (mut stdout, mut stderr) = (tokio::io::stdout(), tokio::io::stderr());
        loop {
            let message = tokio::select! {
                message = self.output.message() => message?,
                () = &mut typed => return Ok(End::Detached),
                () = &mut resized => continue,
            };
            let out_of_memory = message.as_ref().is_some_and(|m| m.out_of_memory);
            match message.and_then(|m| m.output) {
                Some(Output::Stdout(data)) => write(&mut stdout, &data).await?,
                Some(Output::Stderr(data)) => write(&mut stderr, &data).await?,
                Some(Output::ExitCode(code)) => return Ok(End::Exited(Exit { code, out_of_memory })),
                Some(Output::Started(_)) => {}
                None => return Err(Failure::new("the daemon ended the session without an exit code")),
            }
        }
    }
}

async fn write(to: &mut (impl tokio::io::AsyncWrite + Unpin), data: &[u8]) -> Result<(), io::Error> {
    to.write_all(data).await?;
    to.flush().await
}

/// Standard input to the program; returns only when the user typed the keys to leave.
async fn feed(input: mpsc::Sender<SessionInput>, stdin: bool, tty: bool) {
    if stdin {
        let mut keys = Keys::default();
        let mut from = tokio::io::stdin();
        let mut buffer = vec![0; CHUNK];
        // An unreadable standard input has no more to say.
        while let Ok(read @ 1..) = from.read(&mut buffer).await {
            let (data, leave) = if tty { keys.filter(&buffer[..read]) } else { (buffer[..read].to_vec(), false) };
            if !data.is_empty() && input.send(SessionInput { input: Some(Input::Stdin(data)) }).await.is_err() {
                break;
            }
            if leave {
                return;
            }
        }
        // If the session is over, nobody needs to know.
        let _ = input.send(SessionInput { input: Some(Input::StdinClose(true)) }).await;
    }
    std::future::pending().await
}

/// Tells the daemon the terminal's size whenever it changes; never returns.
async fn follow_size(input: mpsc::Sender<SessionInput>, tty: bool) {
    if tty && let Ok(mut changes) = signal(SignalKind::window_change()) {
        while changes.recv().await.is_some() {
            if let Some(now) = terminal::size().map(size) {
                let _ = input.send(SessionInput { input: Some(Input::Resize(now)) }).await;
            }
        }
    }
    std::future::pending().await
}

fn size((columns, rows): (u16, u16)) -> TerminalSize {
    TerminalSize { width: columns.into(), height: rows.into() }
}

/// Looks for the keys to leave; a first key that is not followed by the second is typed after all.
#[derive(Default)]
struct Keys {
    held: bool,
}

impl Keys {
    /// What to pass on, and whether to leave.
    fn filter(&mut self, typed: &[u8]) -> (Vec<u8>, bool) {
        let mut passed = Vec::with_capacity(typed.len() + 1);
        for key in typed {
            if self.held && *key == DETACH[1] {
                return (passed, true);
            }
            if std::mem::take(&mut self.held) {
                passed.push(DETACH[0]);
            }
            match *key == DETACH[0] {
                true => self.held = true,
                false => passed.push(*key),
            }
        }
        (passed, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_to_leave_are_found_over_reads() {
        let mut keys = Keys::default();
        assert_eq!(keys.filter(b"ab\x10"), (b"ab".to_vec(), false));
        assert_eq!(keys.filter(b"\x11rest"), (Vec::new(), true));
    }

    #[test]
    fn a_lonely_first_key_is_typed() {
        let mut keys = Keys::default();
        assert_eq!(keys.filter(b"\x10x"), (b"\x10x".to_vec(), false));
        assert_eq!(keys.filter(b"\x10\x10\x11"), (b"\x10".to_vec(), true));
        assert_eq!(Keys::default().filter(b"\x11"), (b"\x11".to_vec(), false));
    }
}
