//! Connects the stdio of this program to that of a container or an exec'd process, over a bidirectional gRPC stream.

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

/// Maximum bytes of input in one message.
const CHUNK: usize = 16 * 1024;
/// The keys ctrl-p ctrl-q detach from a terminal session without ending it.
const DETACH: [u8; 2] = [16, 17];

/// How a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The program ended.
    Exited(Exit),
    /// The user detached; the program keeps running.
    Detached,
}

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exit {
    /// Exit code; 128 + the signal number if a signal ended the program.
    pub(crate) code: i32,
    /// Whether the OOM killer killed the program or another process of its container.
    pub(crate) out_of_memory: bool,
}

/// The target of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A new process in the container.
    Exec,
    /// The init process of the container.
    Attach,
}

/// A session that the daemon has accepted; [`Session::relay`] runs it.
pub(crate) struct Session {
    output: Streaming<SessionOutput>,
    input: mpsc::Sender<SessionInput>,
    tty: bool,
    stdin: bool,
    _raw: Option<terminal::Raw>,
}

impl Session {
    /// Opens a session. If it has a terminal, the local terminal is set to raw mode.
    pub(crate) async fn open(client: &mut Client, kind: Kind, mut start: SessionStart) -> Result<Self, Failure> {
        let (tty, stdin) = (start.tty, start.stdin);
        if tty {
            start.size = terminal::size().map(size);
        }
        let (input, messages) = mpsc::channel(16);
        // This cannot fail, because the receiver still exists.
        let _ = input.send(SessionInput { input: Some(Input::Start(start)) }).await;
        let messages = ReceiverStream::new(messages);
        let mut output = match kind {
            Kind::Exec => client.native.exec(messages).await?,
            Kind::Attach => client.native.attach(messages).await?,
        }
        .into_inner();
        match output.message().await?.and_then(|m| m.output) {
            Some(Output::Started(_)) => {}
            _ => return Err(Failure::new("open session: the daemon sent an unexpected message")),
        }
        let raw = (tty && stdin && terminal::is_input()).then(terminal::Raw::enter).transpose()?;
        Ok(Self { output, input, tty, stdin, _raw: raw })
    }

    /// Relays input, output and terminal sizes until the program exits or the user detaches.
    pub(crate) async fn relay(mut self) -> Result<End, Failure> {
        let detach = forward_stdin(self.input.clone(), self.stdin, self.tty);
        let resize = forward_size(self.input.clone(), self.tty);
        tokio::pin!(detach, resize);
        let (mut stdout, mut stderr) = (tokio::io::stdout(), tokio::io::stderr());
        loop {
            let message = tokio::select! {
                message = self.output.message() => message?,
                () = &mut detach => return Ok(End::Detached),
                () = &mut resize => continue,
            };
            let out_of_memory = message.as_ref().is_some_and(|m| m.out_of_memory);
            match message.and_then(|m| m.output) {
                Some(Output::Stdout(data)) => write(&mut stdout, &data).await?,
                Some(Output::Stderr(data)) => write(&mut stderr, &data).await?,
                Some(Output::ExitCode(code)) => return Ok(End::Exited(Exit { code, out_of_memory })),
                Some(Output::Started(_)) => {}
                None => return Err(Failure::new("session: the daemon closed the stream without an exit code")),
            }
        }
    }
}

async fn write(to: &mut (impl tokio::io::AsyncWrite + Unpin), data: &[u8]) -> Result<(), io::Error> {
    to.write_all(data).await?;
    to.flush().await
}

/// Sends standard input to the program. Returns only when the user types the detach keys.
async fn forward_stdin(input: mpsc::Sender<SessionInput>, stdin: bool, tty: bool) {
    if stdin {
        let mut keys = Keys::default();
        let mut source = tokio::io::stdin();
        let mut buffer = vec![0; CHUNK];
        // A read error is treated as the end of the input.
        while let Ok(read @ 1..) = source.read(&mut buffer).await {
            let (data, detach) = if tty { keys.filter(&buffer[..read]) } else { (buffer[..read].to_vec(), false) };
            if !data.is_empty() && input.send(SessionInput { input: Some(Input::Stdin(data)) }).await.is_err() {
                break;
            }
            if detach {
                return;
            }
        }
        // This fails only when the session is over, and then it does not matter.
        let _ = input.send(SessionInput { input: Some(Input::StdinClose(true)) }).await;
    }
    std::future::pending().await
}

/// Sends the size of the terminal to the daemon whenever it changes. Never returns.
async fn forward_size(input: mpsc::Sender<SessionInput>, tty: bool) {
    if tty && let Ok(mut changes) = signal(SignalKind::window_change()) {
        while changes.recv().await.is_some() {
            if let Some(now) = terminal::size().map(size) {
                let _ = input.send(SessionInput { input: Some(Input::Resize(now)) }).await;
            }
        }
    }
    std::future::pending().await
}

fn size(size: pod::oci::TerminalSize) -> TerminalSize {
    TerminalSize { width: size.width.into(), height: size.height.into() }
}

/// Detects the detach keys. A first key that is not followed by the second one is passed on.
#[derive(Default)]
struct Keys {
    /// Whether the last key was the first detach key, which is not passed on yet.
    pending: bool,
}

impl Keys {
    /// Returns the input to pass on, and whether to detach.
    fn filter(&mut self, typed: &[u8]) -> (Vec<u8>, bool) {
        let mut passed = Vec::with_capacity(typed.len() + 1);
        for key in typed {
            if self.pending && *key == DETACH[1] {
                return (passed, true);
            }
            if std::mem::take(&mut self.pending) {
                passed.push(DETACH[0]);
            }
            match *key == DETACH[0] {
                true => self.pending = true,
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
    fn the_detach_keys_are_detected_across_reads() {
        let mut keys = Keys::default();
        assert_eq!(keys.filter(b"ab\x10"), (b"ab".to_vec(), false));
        assert_eq!(keys.filter(b"\x11rest"), (Vec::new(), true));
    }

    #[test]
    fn a_first_key_without_the_second_is_passed_on() {
        let mut keys = Keys::default();
        assert_eq!(keys.filter(b"\x10x"), (b"\x10x".to_vec(), false));
        assert_eq!(keys.filter(b"\x10\x10\x11"), (b"\x10".to_vec(), true));
        assert_eq!(Keys::default().filter(b"\x11"), (b"\x11".to_vec(), false));
    }
}
